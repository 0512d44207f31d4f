//! `report`: measures SRD beside raw UDP and kernel TCP and writes `docs/performance.md`.

use crate::{
    Result,
    args::Args,
    process::{cargo, command, output, root, run},
    tools, verbs,
};

/// Builds the measured programs, and passes the options on.
pub fn run_command(args: &mut Args) -> Result {
    let options = args.rest();
    tools::ensure(&["cc"])?;
    // The raw UDP program, which the results are compared with.
    run(&mut cargo(&["build", "--release", "-p", "srd-datapath", "--example", "raw"]))?;
    if options.iter().any(|o| o == "--peers") {
        // Programs for libfabric run over SRD by these.
        tools::build_tool()?;
        verbs::build(None)?;
    }
    let secure = |o: &String| {
        o == "--sealed" || o == "--peers" || o.starts_with("tls-") || o.starts_with("quic-")
    };
    if options.iter().any(secure) {
        // A workspace of its own, whose folder of targets the report looks into.
        let folder = root().join("bench/secure");
        let mut line = cargo(&["build", "--release", "--manifest-path"]);
        line.arg(folder.join("Cargo.toml")).arg("--target-dir").arg(folder.join("target"));
        run(&mut line)?;
    }
    // The program `peers`, and the benchmark of the core alone.
    tools::build_release("srd-report", "peers")?;
    tools::build_release("srd-bench", "srd-bench")?;
    let program = tools::build_release("srd-report", "srd-report")?;
    run(command(&program.to_string_lossy(), &[]).args(options))
}

/// The page that `report` writes.
const PAGE: &str = "docs/performance.md";
/// What stands before the commit that the page is of.
const OF: &str = "of commit `";
/// What the table beside other transports begins with; it may be older than the rest.
const PEERS: &str = "<!-- made by `cargo xtask report --peers` -->";
/// Code of the data path, whose changes may change the figures.
const DATA_PATH: [&str; 6] = [
    "crates/wire/src",
    "crates/core/src",
    "crates/seal/src",
    "crates/datapath/src",
    "crates/share/src",
    "crates/srd/src",
];
/// Changes of the data path after which the figures are too old.
const CHANGES_MAX: u32 = 30;

/// `report-age`: requires that the page is not older than the last commits of the data path.
pub fn age() -> Result {
    let page = std::fs::read_to_string(root().join(PAGE)).map_err(|e| format!("{PAGE}: {e}"))?;
    let none = || format!("{PAGE} names no commit: {REMEDY}");
    let commit = commit_of(&page).ok_or_else(none)?;
    age_of(PAGE, commit, REMEDY)?;
    let Some((_, peers)) = page.split_once(PEERS) else { return Ok(()) };
    let commit = peers_commit(peers).ok_or_else(none)?;
    age_of("its table beside other transports", commit, "measure anew by `report --peers`")
}

/// Requires that `what`, which is of `commit`, is not too old; `remedy` says how it is renewed.
fn age_of(what: &str, commit: &str, remedy: &str) -> Result {
    let git = |args: &[&str]| output(command("git", args).current_dir(root()));
    if git(&["rev-parse", "--is-shallow-repository"])?.trim() == "true" {
        println!("SKIPPED: this clone has no history to look for commit {commit} in");
        return Ok(());
    }
    let since = format!("{commit}..HEAD");
    let line = [&["rev-list", "--count", since.as_str(), "--"][..], &DATA_PATH].concat();
    let count =
        git(&line).map_err(|e| format!("{what} is of a commit that is lost: {remedy}\n{e}"))?;
    let count: u32 = count.trim().parse().map_err(|_| format!("git counts `{count}` commits"))?;
    println!("{what} is of commit {commit}; the data path changed {count} times since then");
    if count > CHANGES_MAX {
        return Err(format!("that is more than {CHANGES_MAX} times: {remedy}"));
    }
    Ok(())
}

const REMEDY: &str = "measure anew by `cargo xtask report`";

fn commit_of(page: &str) -> Option<&str> {
    let (commit, _) = page.split_once(OF)?.1.split_once('`')?;
    is_commit(commit).then_some(commit)
}

/// The commit that the table beside other transports names, which `peers` begins with.
fn peers_commit(peers: &str) -> Option<&str> {
    let mut words = peers.split_whitespace();
    words.find(|word| *word == "Commit")?;
    words.next().map(|word| word.trim_end_matches('.')).filter(|commit| is_commit(commit))
}

fn is_commit(text: &str) -> bool {
    text.len() >= 7 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::{commit_of, peers_commit};

    #[test]
    fn the_page_names_its_commit() {
        let page = "measures everything below, of commit `0123456789ab`. Each figure";
        assert_eq!(commit_of(page), Some("0123456789ab"));
        assert_eq!(commit_of("of commit `unknown`."), None);
        assert_eq!(commit_of("Made by one command"), None);
        let peers = "\n## Beside\n\nMedians (least to most). Commit\n0123456789ab.\n\nRound";
        assert_eq!(peers_commit(peers), Some("0123456789ab"));
        assert_eq!(peers_commit("Commit unknown."), None);
    }
}
