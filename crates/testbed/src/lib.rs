//! `srd net`: a leaf-spine fabric of network namespaces in which the kernel routes by ECMP, as
//! switches do, and measurements of SRD beside the kernel's TCP. See `docs/net.md`.
//!
//! [`spec`] describes a fabric, [`plan`] the configuration of its nodes; [`fabric`] builds it,
//! [`hold`] keeps it in the background, [`fault`] injects faults, and [`paths`] shows which port
//! takes which spine.

pub mod args;
pub mod bench;
pub mod capture;
pub mod check;
pub mod crowd;
pub mod demo;
pub mod error;
pub mod fabric;
pub mod fault;
pub mod hold;
pub mod hostile;
pub mod icmp;
pub mod narrow;
pub mod noise;
pub mod ns;
pub mod paths;
pub mod plan;
mod service;
pub mod soak;
pub mod spec;
mod sys;
pub mod units;

pub use args::NetArgs;
pub use error::{NetError, Result};

use args::{FailPlace, NetCommand, UpArgs};
use spec::{FabricSpec, Node};
use std::{
    ffi::OsString,
    io::Write as _,
    os::unix::process::CommandExt as _,
    process::{Command, ExitCode},
};

/// Executes the command line. Must be called while the process has a single thread.
///
/// # Errors
/// The operation failed; the text says what to do.
pub fn run(args: &NetArgs) -> Result<ExitCode> {
    match &args.command {
        NetCommand::Up(up) => up_run(up),
        NetCommand::Down { name, all } => down_run(&name.name, *all),
        NetCommand::Status { name } => status_run(name.as_deref()),
        NetCommand::Exec { name, node, command } => exec_run(&name.name, node, command),
        NetCommand::Paths { name, from, to, port, count, dst_port, devices } => {
            let ports = (!devices).then_some((*port, *count));
            return paths_run(&name.name, (from, to), ports, *dst_port);
        }
        NetCommand::Fail { name, place } => fail_run(&name.name, place),
        NetCommand::Heal { name } => {
            fault::heal_all(&hold::get(&name.name)?.open()?)?;
            say("all faults are removed")
        }
        NetCommand::Capture(args) => capture::run(args),
        NetCommand::Bench(args) => bench::run(args),
        NetCommand::Demo(args) => demo::run(args),
        NetCommand::Check(args) => check::run(args),
        NetCommand::Soak(args) => soak::run(args),
        NetCommand::RecordNoise(args) => noise::run(args),
        NetCommand::Crowd(args) => crowd::host(args),
        NetCommand::Reader(args) => hostile::readers::reader(args),
        NetCommand::Worker(args) => bench::worker::run(args),
        NetCommand::OtherWork(args) => bench::other_work::run(args),
        NetCommand::Hold { name, spec, until_pid } => hold::hold(name, spec, *until_pid),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// Writes one line to standard output and flushes it.
///
/// # Errors
/// The reader of the output has exited.
pub(crate) fn say(text: &str) -> Result {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush())?;
    Ok(())
}

/// Writes one line to standard error. A failed write is ignored, because it cannot be reported.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

fn up_run(args: &UpArgs) -> Result {
    let (name, spec) = (&args.name.name, args.fabric.spec());
    for n in hold::up(name, &spec, args.until_pid)? {
        note(&format!("srd net: note: {n}"));
    }
    say(&format!("{name} is up: {}", spec.describe()))?;
    hosts_say(&spec)?;
    say(&format!(
        "srd net exec{} h0x0 -- COMMAND    runs a command there; srd net down{} removes the fabric",
        name_option(name),
        name_option(name)
    ))
}

fn name_option(name: &str) -> String {
    if name == "net" { String::new() } else { format!(" --name {name}") }
}

fn hosts_say(spec: &FabricSpec) -> Result {
    for l in 0..spec.leaves {
        let last = spec.hosts - 1;
        let range = |a: String, b: String| if last == 0 { a } else { format!("{a} to {b}") };
        say(&format!(
            "  hosts of l{l}: {}  {}  {}",
            range(format!("h{l}x0"), format!("h{l}x{last}")),
            range(spec.ip(l, 0).to_string(), spec.ip(l, last).to_string()),
            range(spec.ip6(l, 0).to_string(), spec.ip6(l, last).to_string()),
        ))?;
    }
    Ok(())
}

fn down_run(name: &str, all: bool) -> Result {
    let list = if all {
        hold::all()?
    } else {
        [(name.to_owned(), hold::get(name)?)].into_iter().collect()
    };
    if list.is_empty() {
        return say("no fabric is up");
    }
    for (name, state) in list {
        let ended = hold::down(&name, &state)?;
        let also = match ended {
            0 => String::new(),
            1 => "; one process that ran in it was ended".into(),
            n => format!("; {n} processes that ran in it were ended"),
        };
        say(&format!("{name} is down{also}"))?;
    }
    Ok(())
}

fn status_run(only: Option<&str>) -> Result {
    let list = match only {
        Some(name) => [(name.to_owned(), hold::get(name)?)].into(),
        None => hold::all()?,
    };
    if list.is_empty() {
        return say("no fabric is up (srd net up)");
    }
    for (name, state) in list {
        say(&format!("{name} (process {}): {}", state.pid, state.spec.describe()))?;
        hosts_say(&state.spec)?;
    }
    Ok(())
}

fn exec_run(name: &str, node: &str, command: &[OsString]) -> Result {
    let fabric = hold::get(name)?.open()?;
    fabric.ns(fabric.spec().node(node)?)?.enter()?;
    let (program, args) = command.split_first().ok_or_else(|| NetError::usage("no command"))?;
    let error = Command::new(program).args(args).exec();
    Err(NetError::system(&format!("cannot run {}", program.display()), error))
}

fn paths_run(
    name: &str,
    (from, to): (&str, &str),
    ports: Option<(u16, u16)>,
    dst_port: u16,
) -> Result<ExitCode> {
    let fabric = hold::get(name)?.open()?;
    let host = |name: &str| match fabric.spec().node(name)? {
        Node::Host(l, h) => Ok((l, h)),
        other => Err(NetError::usage(format!("{other} is not a host"))),
    };
    let Some((port, count)) = ports else {
        let found = paths::of_devices(&fabric, host(from)?, host(to)?, dst_port)?;
        say(&paths::devices_table(&found, fabric.spec().spines))?;
        return Ok(ExitCode::SUCCESS);
    };
    let last = port.checked_add(count.max(1) - 1);
    let last = last.ok_or_else(|| NetError::usage("ports end at 65535: use a smaller --count"))?;
    let ports: Vec<u16> = (port..=last).collect();
    let rows = paths::check(&fabric, host(from)?, host(to)?, &ports, dst_port)?;
    let (text, right) = paths::table(&rows, fabric.spec().spines);
    say(&text)?;
    Ok(if right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn fail_run(name: &str, what: &FailPlace) -> Result {
    let fabric = hold::get(name)?.open()?;
    let (place, how) = what.parts();
    fault::fail(&fabric, place, how.fault())?;
    match how.lasting {
        None => say("the fault lasts until `srd net heal`"),
        Some(time) => {
            std::thread::sleep(time);
            fault::heal(&fabric, place, how.fault())?;
            say("the fault was injected and removed")
        }
    }
}
