//! What a program or library needs of the system that it runs on, as `readelf` shows it.

use crate::{
    Result,
    process::{command, output},
};
use std::path::Path;

/// Requirements of a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Elf {
    /// Its own name for the loader.
    pub soname: Option<String>,
    /// Libraries that the loader has to find.
    pub needed: Vec<String>,
    /// Newest version of glibc's symbols, as (2, 28).
    pub glibc: (u32, u32),
}

impl Elf {
    /// Reads a file.
    pub fn read(file: &Path) -> Result<Self> {
        let mut c = command("readelf", &["--wide", "--dynamic", "--version-info"]);
        Ok(Self::of(&output(c.arg(file).env("LC_ALL", "C"))?))
    }

    /// ` 0x01 (NEEDED)  Shared library: [libc.so.6]`; `0x0010:   Name: GLIBC_2.34  Flags: none …`
    fn of(text: &str) -> Self {
        let mut elf = Self::default();
        for line in text.lines() {
            let bracketed = || Some(line.split_once('[')?.1.split_once(']')?.0.to_owned());
            if line.contains("(NEEDED)") {
                elf.needed.extend(bracketed());
            } else if line.contains("(SONAME)") {
                elf.soname = bracketed();
            } else if let Some((_, version)) = line.split_once("Name: GLIBC_") {
                let mut numbers = version.split_whitespace().next().unwrap_or_default().split('.');
                let mut next = || numbers.next().and_then(|n| n.parse().ok()).unwrap_or(0);
                elf.glibc = elf.glibc.max((next(), next()));
            }
        }
        elf
    }
}

#[cfg(test)]
mod tests {
    use super::Elf;

    #[test]
    fn the_newest_version_counts_as_numbers_do() {
        let text = " 0x1 (NEEDED)  Shared library: [libc.so.6]\n \
                    0xe (SONAME)  Library soname: [libx.so.1]\n  \
                    0x10:   Name: GLIBC_2.9  Flags: none  Version: 3\n  \
                    0x20:   Name: GLIBC_2.34  Flags: none  Version: 2\n  \
                    0x30:   Name: GLIBC_2.2.5  Flags: none  Version: 2\n  \
                    0x40:   Name: GCC_4.2.0  Flags: none  Version: 5\n";
        let elf = Elf::of(text);
        assert_eq!(elf.glibc, (2, 34));
        assert_eq!((elf.needed, elf.soname), (vec!["libc.so.6".into()], Some("libx.so.1".into())));
    }
}
