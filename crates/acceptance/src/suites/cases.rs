//! The acceptance cases.

use super::{
    application, coarrays, counters,
    fabric::{Fabric, Said, Shell},
    hdf5, hpcc, openfoam, petsc, rails, sealed,
};
use crate::{
    Result,
    mpi::stage::Transport,
    process::{command, root, run as build},
};
use std::{thread::sleep, time::Duration};

/// One program with one task.
pub struct Case {
    /// Name in the table.
    pub name: &'static str,
    /// The program or C header that must be installed, as `scripts/apt-ensure` calls it.
    pub needs: &'static str,
    /// Whether the case belongs to the short set.
    pub short: bool,
    /// Whether its messages cross the fabric, so that the spines' counters must show them.
    pub travels: bool,
    /// Runs the case; returns a remark for the table.
    pub run: fn(&Fabric) -> Result<String>,
}

/// All cases, in order.
pub const CASES: &[Case] = &[
    Case {
        name: "ibv_devinfo -v",
        needs: "ibv_devinfo",
        short: true,
        travels: false,
        run: |f| shows(f, "ibv_devinfo -v", &["hca_id:\tsrd0", "software-srd", "PORT_ACTIVE"]),
    },
    Case {
        name: "places where programs look for devices, by every call",
        needs: "ibv_devinfo",
        short: true,
        travels: false,
        run: places,
    },
    Case {
        name: "fi_info -p efa",
        needs: "fi_pingpong",
        short: true,
        travels: false,
        run: |f| shows(f, "fi_info -p efa", &["srd0-rdm", "srd0-dgrm", "FI_PROTO_EFA"]),
    },
    Case {
        name: "fi_pingpong rdm, 0 B to 6 MB, data checked",
        needs: "fi_pingpong",
        short: true,
        travels: true,
        run: |f| pingpong(f, "rdm"),
    },
    Case {
        name: "fi_pingpong dgram, data checked",
        needs: "fi_pingpong",
        short: true,
        travels: true,
        run: |f| pingpong(f, "dgram"),
    },
    Case {
        name: "ib_send_bw -c SRD, all sizes",
        needs: "ib_send_bw",
        short: true,
        travels: true,
        run: |f| perftest(f, "ib_send_bw", "-c SRD -a -n 300"),
    },
    Case {
        name: "ib_send_bw -c SRD, 8 queue pairs",
        needs: "ib_send_bw",
        short: true,
        travels: true,
        run: |f| perftest(f, "ib_send_bw", EIGHT),
    },
    Case {
        name: "ib_send_bw -c SRD, 8 queue pairs, two shards per device",
        needs: "ib_send_bw",
        short: false,
        travels: true,
        run: |f| sharded(2, &perftest_said(f, &format!("{SHARDED} ib_send_bw"), EIGHT)?, through),
    },
    Case {
        name: "ib_send_lat -c SRD",
        needs: "ib_send_bw",
        short: true,
        travels: true,
        // With one packet at a time, SRD stays on a good path: many operations make it change.
        run: |f| perftest(f, "ib_send_lat", "-c SRD -n 3000"),
    },
    Case {
        name: "ib_read_bw -c SRD, 64 KiB",
        needs: "ib_send_bw",
        short: true,
        travels: true,
        run: |f| perftest(f, "ib_read_bw", "-c SRD -s 65536 -n 200"),
    },
    Case {
        name: "ib_read_lat -c SRD",
        needs: "ib_send_bw",
        short: false,
        travels: true,
        run: |f| perftest(f, "ib_read_lat", "-c SRD -n 3000"),
    },
    Case {
        name: "ib_send_bw -c UD, waiting for events",
        needs: "ib_send_bw",
        short: true,
        travels: true,
        run: |f| perftest(f, "ib_send_bw", "-c UD -e -Q 1 -s 2048 -n 300"),
    },
    Case {
        name: "Open MPI, 4 ranks on 2 hosts, up to 64 KiB",
        needs: "mpicc",
        short: true,
        travels: true,
        run: |f| mpi(f, 4, "65536"),
    },
    Case {
        name: "Open MPI, `-x` and the caller's variables by a shell that passes none",
        needs: "mpicc",
        short: true,
        travels: true,
        run: mpi_bare,
    },
    Case {
        name: "Open MPI, 8 ranks on 4 hosts, up to 1 MiB",
        needs: "mpicc",
        short: false,
        travels: true,
        run: |f| mpi(f, 8, "1048576"),
    },
    Case {
        name: "Open MPI, 2 ranks, up to 64 MiB",
        needs: "mpicc",
        short: false,
        travels: true,
        run: |f| mpi(f, 2, "67108864"),
    },
    Case {
        name: "Open MPI, 4 ranks on 2 hosts, two shards per device, up to 1 MiB",
        needs: "mpicc",
        short: true,
        travels: true,
        run: |f| mpi_sharded(f, "1048576"),
    },
    Case {
        name: "completion counters and 64-bit request numbers, by verbs",
        needs: "infiniband/efadv.h",
        short: true,
        travels: true,
        run: counters::run,
    },
    Case {
        name: "rails: one process with two devices, by verbs",
        needs: "infiniband/efadv.h",
        short: true,
        travels: true,
        run: rails::verbs,
    },
    Case {
        name: "rails: one process with two domains, by libfabric",
        needs: "rdma/fabric.h",
        short: true,
        travels: true,
        run: rails::libfabric,
    },
    Case {
        name: "rails: Open MPI, ranks of one host on either interface",
        needs: "mpicc",
        short: true,
        travels: true,
        run: rails::mpi,
    },
    Case {
        name: "Open MPI while a spine is black-holed",
        needs: "mpicc",
        short: true,
        travels: true,
        run: |f| mpi_broken(f, &[("spine --blackhole --for 4s 0", 3000)]),
    },
    Case {
        name: "Open MPI with 1 % loss on all ways",
        needs: "mpicc",
        short: true,
        travels: true,
        run: |f| mpi_broken(f, &[("spine --loss 1% 0", 0), ("spine --loss 1% 1", 0)]),
    },
    Case {
        name: "Open MPI with a flapping link",
        needs: "mpicc",
        short: false,
        travels: true,
        run: |f| {
            const FLAP: &str = "link --link-down --for 300ms 0 0";
            mpi_broken(f, &[(FLAP, 2500), (FLAP, 1000), (FLAP, 1000), (FLAP, 1000)])
        },
    },
    Case {
        name: "Open MPI, a rank is killed: the others end",
        needs: "mpicc",
        short: false,
        travels: false,
        run: rank_killed,
    },
    Case {
        name: "srd cp: the file is searched for in what the spines forward",
        needs: "ip",
        short: true,
        travels: false,
        run: sealed::searched,
    },
    Case {
        name: "fi_pingpong, a client with another key, and one without",
        needs: "fi_pingpong",
        short: false,
        travels: false,
        run: sealed::refused,
    },
    Case {
        name: "LAMMPS, 4 ranks on 2 hosts, beside a run over TCP",
        needs: "lmp",
        short: false,
        travels: true,
        run: application::run,
    },
    Case {
        name: "OpenFOAM motorBike, 2 hosts, beside runs over TCP",
        needs: "simpleFoam",
        short: false,
        travels: true,
        run: |f| openfoam::run(f, 2, false),
    },
    Case {
        name: "OpenFOAM motorBike, 4 hosts, beside runs over TCP",
        needs: "simpleFoam",
        short: false,
        travels: true,
        run: |f| openfoam::run(f, 4, false),
    },
    Case {
        name: "OpenFOAM motorBike, 2 hosts, each spine dead for 1 s, beside runs over TCP",
        needs: "simpleFoam",
        short: false,
        travels: true,
        run: |f| openfoam::run(f, 2, true),
    },
    Case {
        name: "hpcc, 2 hosts, beside a run over TCP",
        needs: "hpcc",
        short: false,
        travels: true,
        run: hpcc::run,
    },
    Case {
        name: "PETSc, 4 ranks on 2 hosts, beside a run over TCP",
        needs: "petsc4py",
        short: false,
        travels: true,
        run: petsc::run,
    },
    Case {
        name: "parallel HDF5, 4 ranks on 2 hosts, one file, beside a run over TCP",
        needs: "h5pcc.openmpi",
        short: false,
        travels: true,
        run: hdf5::run,
    },
    Case {
        name: "Fortran coarrays, 2 images on 2 hosts",
        needs: "caf",
        short: false,
        travels: true,
        run: |f| coarrays::run(f, 2),
    },
    Case {
        name: "Fortran coarrays, 4 images on 2 hosts",
        needs: "caf",
        short: false,
        travels: true,
        run: |f| coarrays::run(f, 4),
    },
];

/// Options of perftest for eight queue pairs.
const EIGHT: &str = "-c SRD -q 8 -n 300";
/// Starts a program whose devices have two shards each, and say so.
const SHARDED: &str = "env SRD_SHARDS=2 SRD_LOG=info";

/// Requires success.
pub fn expect_end(said: &Said) -> Result {
    if said.code == 0 { Ok(()) } else { Err(said.tail()) }
}

/// Requires success of a run over that transport, which an error names.
pub fn expect_end_over(over: Transport, said: &Said) -> Result {
    expect_end(said).map_err(|e| format!("{}: {e}", over.name()))
}

/// Requires that a program printed the same over SRD as over TCP.
pub fn expect_same(srd: &[String], tcp: &[String]) -> Result {
    if let Some((ours, theirs)) = srd.iter().zip(tcp).find(|(a, b)| a != b) {
        return Err(format!("over SRD `{ours}`, over TCP `{theirs}`"));
    }
    if srd.len() == tcp.len() {
        return Ok(());
    }
    Err(format!("{} lines over SRD, {} over TCP", srd.len(), tcp.len()))
}

/// The summary of `srd run` as a remark.
pub fn through(said: &Said) -> Result<String> {
    let line = said.text.lines().find(|l| l.starts_with("srd: ") && l.contains("through SRD in"));
    let line = line.ok_or_else(|| format!("`srd run` printed no summary, {}", said.tail()))?;
    let paths = line.split(" on ").nth(1).and_then(|t| t.split(' ').next());
    let paths: u32 = paths.and_then(|n| n.parse().ok()).unwrap_or(0);
    if paths < 2 {
        return Err(format!("only one path was used: {line}"));
    }
    let mut parts = line.trim_start_matches("srd: ").split(", ");
    let (_, messages, bytes) = (parts.next(), parts.next(), parts.next());
    let bytes = bytes.and_then(|b| b.split(" through").next()).unwrap_or_default();
    Ok(format!("{}, {bytes}, {paths} paths", messages.unwrap_or_default()))
}

fn shows(f: &Fabric, line: &str, words: &[&str]) -> Result<String> {
    let said = f.one("h0x0", 20, line)?;
    expect_end(&said)?;
    match words.iter().find(|w| !said.text.contains(**w)) {
        Some(word) => Err(format!("`{word}` is missing, {}", said.tail())),
        None => Ok(String::new()),
    }
}

fn pingpong(f: &Fabric, kind: &str) -> Result<String> {
    let line = format!("fi_pingpong -p efa -e {kind} -c -I 5 -S all");
    let [server, client] = f.pair(60, &line, &line)?;
    expect_end(&client)?;
    expect_end(&server)?;
    through(&client)
}

fn perftest_said(f: &Fabric, program: &str, options: &str) -> Result<[Said; 2]> {
    let line = format!("{program} -d srd0 -x 0 -F {options}");
    let [server, client] = f.pair(60, &line, &line)?;
    expect_end(&client)?;
    expect_end(&server)?;
    Ok([client, server])
}

fn perftest(f: &Fabric, program: &str, options: &str) -> Result<String> {
    let [client, server] = perftest_said(f, program, options)?;
    let (client, server) = (through(&client), through(&server));
    // A receiver with few acknowledgments uses a single path.
    client.or(server)
}

/// Requires that `mpi_check` found no error; returns a remark.
pub fn checked(said: &Said) -> Result<String> {
    checked_by("mpi_check", said)
}

/// Requires that the given checker found no error; returns a remark.
pub fn checked_by(checker: &str, said: &Said) -> Result<String> {
    expect_end(said)?;
    let begin = format!("{checker}: ");
    let verdict = said.text.lines().find(|l| l.starts_with(&begin) && l.contains(" checks, "));
    match verdict {
        Some(line) if line.ends_with(" 0 wrong") => {
            let checks = line.split(' ').nth(1).unwrap_or("?");
            Ok(format!("{checks} checks; {}", through(said)?))
        }
        _ => Err(format!("wrong results, {}", said.tail())),
    }
}

pub fn program(f: &Fabric) -> String {
    f.folder().join("mpi_check").display().to_string()
}

fn mpi(f: &Fabric, ranks: u32, largest: &str) -> Result<String> {
    let said = f.mpi(150, ranks, &format!("{} {largest}", program(f)))?;
    checked(&said)
}

fn mpi_sharded(f: &Fabric, largest: &str) -> Result<String> {
    let ranks = 4;
    let said = f.mpi(150, ranks, &format!("{SHARDED} {} {largest}", program(f)))?;
    sharded(ranks as usize, &[said], checked)
}

/// Requires that devices of so many processes had two shards each, besides what `passed` requires
/// of the first.
fn sharded(
    processes: usize,
    said: &[Said],
    passed: impl Fn(&Said) -> Result<String>,
) -> Result<String> {
    let ports = |said: &Said| {
        // Each shard has a port of its own.
        let lines =
            said.text.lines().filter(|l| l.contains(": device ") && l.contains(" opened: "));
        lines.count()
    };
    let shards: usize = said.iter().map(ports).sum();
    let remark = passed(&said[0])?;
    match shards >= 2 * processes {
        true => Ok(format!("{remark}; {shards} shards")),
        false => Err(format!("{processes} processes had {shards} shards; {}", said[0].tail())),
    }
}

/// Programs find the device without verbs, also under a name of the user's.
fn places(f: &Fabric) -> Result<String> {
    let program = f.folder().join("places_check");
    let source = root().join("bindings/ibverbs/tests/programs/places_check.c");
    let flags = ["-O2", "-D_FORTIFY_SOURCE=2", "-Wall", "-Wextra", "-Werror", "-o"];
    build(command("cc", &flags).arg(&program).arg(source))?;
    let program = program.display();
    let mut remark = String::new();
    for (name, prefix) in [("srd0", ""), ("rdmap0s6", "env SRD_DEVICE_NAME=rdmap0s6 ")] {
        let line = f.under("--allow-fallback", &format!("{program} {name}"));
        let said = f.plain("h0x0", 30, &format!("{prefix}{line}"))?;
        expect_end(&said)?;
        let verdict = said.text.lines().find(|l| l.starts_with("places_check: "));
        match verdict {
            Some(line) if line.ends_with(" 0 wrong") => remark = line.to_owned(),
            _ => return Err(format!("wrong results, {}", said.tail())),
        }
    }
    let shown = f.plain(
        "h0x0",
        30,
        &format!("env SRD_DEVICE_NAME=rdmap0s6 {}", f.under("", "ibv_devinfo")),
    )?;
    if !shown.text.contains("rdmap0s6") || shown.text.contains("srd0") {
        return Err(format!("ibv_devinfo shows other names, {}", shown.tail()));
    }
    Ok(remark.trim_start_matches("places_check: ").to_owned())
}

/// Ranks start only if the variables of `srd run`, of the caller and of `-x` have reached them.
fn mpi_bare(f: &Fabric) -> Result<String> {
    let said = f.mpi_bare(60, &Shell::Bare.rank(&format!("{} 65536", program(f))))?;
    let remark = checked(&said)?;
    match said.text.contains("WARNING") {
        true => Err(format!("{remark}; {}", said.tail())),
        false => Shell::Bare.heeded(remark),
    }
}

/// Runs a program while faults are injected, each some milliseconds after the previous one.
fn mpi_broken(f: &Fabric, faults: &[(&str, u64)]) -> Result<String> {
    let line = format!("{} 4096 8", program(f));
    let said = std::thread::scope(|s| {
        let running = s.spawn(|| f.mpi(90, 4, &line));
        let mut breaking = Vec::new();
        for (what, after) in faults {
            sleep(Duration::from_millis(*after));
            breaking.push(f.fail(what)?);
        }
        let said = running.join().map_err(|_| "the run's thread ended early".to_string())??;
        for mut child in breaking {
            child.wait().map_err(|e| format!("breaking the fabric: {e}"))?;
        }
        Ok::<Said, String>(said)
    });
    f.heal()?;
    let said = said?;
    let remark = checked(&said)?;
    let rounds = said.text.lines().find(|l| l.contains("rounds, the longest took"));
    let rounds = rounds.unwrap_or("mpi_check: ").trim_start_matches("mpi_check: ");
    Ok(format!("{rounds}; {remark}"))
}

fn rank_killed(f: &Fabric) -> Result<String> {
    let check = program(f);
    let line = format!(
        "sh -c 'if [ \"$OMPI_COMM_WORLD_RANK\" = 1 ]; then exec timeout -s KILL 4 {check} 4096 60; \
         fi; exec {check} 4096 60'"
    );
    let began = std::time::Instant::now();
    let said = f.mpi(45, 4, &line)?;
    let seconds = began.elapsed().as_secs();
    if said.code == 0 || seconds >= 45 {
        return Err(format!("after {seconds} s: {}", said.tail()));
    }
    Ok(format!("ended with an error after {seconds} s"))
}

#[cfg(test)]
#[path = "cases_tests.rs"]
mod tests;
