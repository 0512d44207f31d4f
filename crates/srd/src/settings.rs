//! Settings of processes: environment variables, and for those that are not set a file of the host.

use crate::SHARDS_MAX;
use srd_core::limits::{MTU_MIN, PATHS_MAX};
use std::{
    env,
    ffi::OsString,
    fs::{self, File},
    io::{ErrorKind, Read},
    net::IpAddr,
    path::{Path, PathBuf},
    sync::OnceLock,
};

/// The host's file, unless `SRD_CONF` names another one.
pub const SETTINGS_FILE: &str = "/etc/srd.conf";
/// Environment variable with the path of the file; empty: no file.
const CONF_VARIABLE: &str = "SRD_CONF";
/// Most bytes of the file.
const BYTES_MAX: u64 = 64 * 1024;

/// The fastest port in Mb/s: what the engine believes of a port that tells nothing, too.
pub(crate) const LINE_MBPS_MAX: u32 = 400_000;
/// Longest silence of a peer that may be asked for, in seconds.
const SILENT_S_MAX: u32 = 3_600;

/// Most characters of a wrong line that an error repeats.
const SHOWN_MAX: usize = 80;

/// What a value must be.
#[derive(Clone, Copy)]
enum Form {
    /// Any text.
    Text,
    /// A path from the root, because the processes that read the file run in different folders.
    Path,
    /// IP addresses, separated by commas.
    Ips,
    /// A whole number between these two.
    Number(u32, u32),
    /// A power of two up to this.
    PowerOfTwo(u16),
    /// One of these words.
    Words(&'static [&'static str]),
}

/// The variables that may be in the file. Those of single processes (statistics, launchers) may
/// not.
const NAMES: [(&str, Form); 20] = [
    ("SRD_INTERFACE", Form::Text),
    ("SRD_IP", Form::Ips),
    ("SRD_DEVICE_NAME", Form::Text),
    ("SRD_MTU", Form::Number(MTU_MIN as u32, u16::MAX as u32)),
    ("SRD_PATHS", Form::PowerOfTwo(PATHS_MAX as u16)),
    ("SRD_PATH_POLICY", Form::Words(&["srd", "oblivious", "ecmp", "rtt-p2c"])),
    ("SRD_INTEGRITY", Form::Words(&["on", "off"])),
    ("SRD_SHARDS", Form::Number(1, SHARDS_MAX as u32)),
    ("SRD_LINE_MBPS", Form::Number(1, LINE_MBPS_MAX)),
    ("SRD_SILENT_S", Form::Number(1, SILENT_S_MAX)),
    ("SRD_RAILS", Form::Text),
    ("SRD_PORT_BASE", Form::Number(1, u16::MAX as u32 - 255)),
    ("SRD_PCI", Form::Words(&["none"])),
    ("SRD_KEY_FILE", Form::Path),
    ("SRD_SEAL", Form::Words(&["never", "prefer", "require"])),
    ("SRD_SHARE", Form::Words(&["0", "1"])),
    ("SRD_STATUS", Form::Words(&["0", "1"])),
    ("SRD_LOG", Form::Words(&["off", "error", "warn", "info", "debug"])),
    ("SRD_LOG_FILE", Form::Path),
    ("SRD_VERBS_DIR", Form::Path),
];

/// A file of settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsFile {
    /// Where it is.
    pub path: PathBuf,
    /// Names of variables and their values, in the order of the file.
    pub values: Vec<(String, String)>,
}

/// The value of a setting: of the environment variable `name` if it is set, even to nothing,
/// otherwise of the file. A file that cannot be used has no values; [`settings_file`] and
/// [`Device::open`](crate::Device::open) say why.
pub fn setting(name: &str) -> Option<OsString> {
    let in_file = || {
        let file = settings_file().ok()??;
        file.values.iter().find(|(known, _)| known == name).map(|(_, value)| value.into())
    };
    env::var_os(name).or_else(in_file)
}

/// The file of settings of this process, read once: `/etc/srd.conf`, or the one that the
/// environment variable `SRD_CONF` names. `None`: there is none.
///
/// # Errors
/// The file cannot be used; the text names file, line and remedy.
pub fn settings_file() -> Result<Option<&'static SettingsFile>, &'static str> {
    static FILE: OnceLock<Result<Option<SettingsFile>, String>> = OnceLock::new();
    let read = FILE.get_or_init(|| match env::var_os(CONF_VARIABLE) {
        Some(path) if path.is_empty() => Ok(None),
        Some(path) => load(Path::new(&path)).and_then(|file| {
            let missing = || {
                format!(
                    "{CONF_VARIABLE}={}: no such file; correct the path, or set {CONF_VARIABLE}= \
                     for no file",
                    path.display()
                )
            };
            file.map(Some).ok_or_else(missing)
        }),
        None => load(Path::new(SETTINGS_FILE)),
    });
    read.as_ref().map(Option::as_ref).map_err(String::as_str)
}

/// Reads a file; `None` if it does not exist.
fn load(path: &Path) -> Result<Option<SettingsFile>, String> {
    let fail = |e: &dyn std::fmt::Display| format!("settings file {}: {e}", path.display());
    match fs::metadata(path) {
        // Before it is opened: a pipe would wait for a writer.
        Ok(found) if !found.is_file() => return Err(fail(&"it is no regular file")),
        Ok(_) => {}
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(fail(&e)),
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|e| fail(&e))?;
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|e| fail(&e))?;
    if bytes.len() as u64 > BYTES_MAX {
        let text = format!("it has more than {BYTES_MAX} bytes: name a file of settings");
        return Err(fail(&text));
    }
    let text = str::from_utf8(&bytes).map_err(|_| fail(&"it is no text in UTF-8"))?;
    let values = parse(text).map_err(|e| fail(&e))?;
    Ok(Some(SettingsFile { path: path.to_path_buf(), values }))
}

/// A part of a wrong line for an error, without control characters.
fn shown(text: &str) -> String {
    text.chars().take(SHOWN_MAX).flat_map(char::escape_debug).collect()
}

fn parse(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut values: Vec<(String, String)> = Vec::new();
    // Editors of other systems put a mark at the begin, and a carriage return at the end of lines.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (at, line) in text.lines().enumerate() {
        let (at, line) = (at + 1, line.trim());
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((name, value)) = line.split_once('=') else {
            return Err(format!("line {at}: write `NAME = value`, or begin a comment with #"));
        };
        let (name, value) = (name.trim(), value.trim());
        let Some((_, form)) = NAMES.iter().find(|(known, _)| *known == name) else {
            let known = NAMES.map(|(known, _)| known).join(", ");
            let name = shown(name);
            return Err(format!("line {at}: {name} is no setting of a host; these are {known}"));
        };
        if values.iter().any(|(known, _)| known == name) {
            return Err(format!("line {at}: {name} comes twice; remove one of both"));
        }
        form.check(value)
            .map_err(|must| format!("line {at}: {name}={}: it must be {must}", shown(value)))?;
        values.push((name.into(), value.into()));
    }
    Ok(values)
}

impl Form {
    /// What the value must be, if it is not.
    fn check(self, value: &str) -> Result<(), String> {
        if value.is_empty() {
            return Err("something; remove the line otherwise".into());
        }
        if value.contains(char::is_control) {
            return Err("without control characters".into());
        }
        let number = value.parse::<u32>().ok();
        let ip = |part: &str| part.trim().parse::<IpAddr>().is_ok();
        let (holds, must) = match self {
            Self::Text => (true, String::new()),
            Self::Path => (value.starts_with('/'), "a path that begins with /".into()),
            Self::Ips => (value.split(',').all(ip), "IP addresses, separated by commas".into()),
            Self::Number(min, max) => (
                number.is_some_and(|n| (min..=max).contains(&n)),
                format!("a whole number from {min} to {max}"),
            ),
            Self::PowerOfTwo(max) => (
                number.is_some_and(|n| n.is_power_of_two() && n <= max.into()),
                format!("a power of two from 1 to {max}"),
            ),
            Self::Words(words) => (words.contains(&value), words.join(" or ")),
        };
        if holds { Ok(()) } else { Err(must) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_names_and_values() {
        let text = "# of all hosts\n\n SRD_PATHS = 128 \nSRD_KEY_FILE=/etc/srd keys\n";
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let wanted = [pair("SRD_PATHS", "128"), pair("SRD_KEY_FILE", "/etc/srd keys")];
        assert_eq!(parse(text).unwrap(), wanted);
        let other = format!("\u{feff}{}", text.replace('\n', "\r\n"));
        assert_eq!(parse(&other).unwrap(), wanted);
        assert!(parse("SRD_IP=10.0.0.1, fd00::1\nSRD_PATHS=1\nSRD_PORT_BASE=65280").is_ok());
    }

    #[test]
    fn wrong_lines_are_named_with_a_remedy() {
        for (text, words) in [
            ("SRD_PATHS 3", "line 1: write `NAME = value`"),
            ("\n\nSRD_PATHES=3", "line 3: SRD_PATHES is no setting of a host; these are SRD_INTER"),
            ("SRD_MTU=9000\nSRD_MTU=1500", "line 2: SRD_MTU comes twice"),
            ("SRD_PATHS=many", "line 1: SRD_PATHS=many: it must be a power of two from 1 to 256"),
            ("SRD_PATHS=3", "it must be a power of two"),
            ("SRD_PATHS=512", "it must be a power of two"),
            ("SRD_PATHS=8 # of this host", "it must be a power of two"),
            ("SRD_MTU=63", "it must be a whole number from 64 to 65535"),
            ("SRD_PORT_BASE=65281", "it must be a whole number from 1 to 65280"),
            ("SRD_IP=10.0.0.1, 10.0.0", "it must be IP addresses, separated by commas"),
            ("SRD_KEY_FILE=~/keys", "it must be a path that begins with /"),
            ("SRD_KEY_FILE=/a\0b", "SRD_KEY_FILE=/a\\0b: it must be without control characters"),
            ("SRD_\x1b[2J=1", "line 1: SRD_\\u{1b}[2J is no setting"),
            ("SRD_LINE_MBPS=10G", "it must be a whole number from 1 to 400000"),
            ("SRD_SILENT_S=0", "it must be a whole number from 1 to 3600"),
            ("SRD_SEAL=yes", "it must be never or prefer or require"),
            ("SRD_KEY_FILE=", "remove the line otherwise"),
            ("SRD_STATS_DIR=/x", "line 1: SRD_STATS_DIR is no setting of a host"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(words), "{text:?}: {error}");
        }
    }

    #[test]
    fn files_that_cannot_be_used_are_refused() {
        assert_eq!(load(Path::new("/none/srd.conf")), Ok(None));
        let error = load(Path::new("/")).unwrap_err();
        assert!(error.contains("settings file /: it is no regular file"), "{error}");
    }
}
