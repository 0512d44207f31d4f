//! Gives the shared library its SONAME: before version 1.0 each minor version may change the
//! interface, so the name has both numbers.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let (major, minor) = (env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"));
    let number = if major == "0" { format!("0.{minor}") } else { major.to_owned() };
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libsrd_c.so.{number}");
}
