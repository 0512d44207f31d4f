//! `srd lab` as users run it: experiments from files, reports, and refused input.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
};

/// A temporary folder of one test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("srd-lab-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).unwrap();
    }
    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }
    fn lab(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_srd"));
        command.arg("lab").args(args).current_dir(&self.0);
        command
    }
    fn ok(&self, args: &[&str]) -> String {
        told(self.lab(args).output().unwrap())
    }
    /// Requires an exit code and words in the error text.
    fn fails(&self, args: &[&str], code: i32, words: &[&str]) {
        let out = self.lab(args).output().unwrap();
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(code), "{args:?}: {text}");
        for word in words {
            assert!(text.contains(word), "{args:?}: no {word:?} in {text}");
        }
        assert!(!text.contains("panicked"), "{text}");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Standard output of a command that must succeed.
fn told(out: Output) -> String {
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{}: {stderr}", out.status);
    String::from_utf8(out.stdout).unwrap()
}

const SPEC: &str = "name = \"mine\"
title = \"SRD & TCP between two leaves\"
seeds = 2
across = [\"transport\"]
[network]
shape = \"leaf-spine\"
leaves = 2
spines = 2
hosts_per_leaf = 2
shared_buffer_bytes = 200_000
[workload]
pattern = \"leaf-pairs\"
pairs = 2
bytes = 100_000
[[axes.transport]]
label = \"SRD\"
[[axes.transport]]
label = \"TCP\"
transport = \"tcp\"
[[cases]]
case = \"one round\"
";

/// Names of the built-in experiments.
const EXPERIMENTS: [&str; 40] = [
    "fig2",
    "fig3",
    "fig4",
    "fig6",
    "linkfail",
    "smallincast",
    "permutation",
    "slowlinks",
    "contexts",
    "scale",
    "ordering",
    "spray-microbursts",
    "ablation",
    "incast",
    "vc-congestion",
    "saa",
    "rr",
    "saa-buffers",
    "saa-dynamic",
    "saa-app",
    "copa",
    "copa-recovery",
    "copa-multi",
    "copa-srd",
    "ordered",
    "poisson",
    "shipping",
    "matrix",
    "roce",
    "headofline",
    "deadlock",
    "timeouts",
    "table",
    "outstanding",
    "peers",
    "flowcap",
    "generations",
    "apps",
    "coexist",
    "hostnoise",
];

#[test]
fn the_list_names_every_experiment_with_what_it_shows() {
    let folder = Folder::new("list");
    let list = folder.ok(&["list"]);
    assert_eq!(list.lines().count(), EXPERIMENTS.len());
    for name in EXPERIMENTS {
        let line = list.lines().find(|l| l.split_whitespace().next() == Some(name));
        let line = line.unwrap_or_else(|| panic!("no {name} in {list}"));
        assert!(line.contains(" cases, ") && line.ends_with(" runs)"), "{line}");
    }
}

#[test]
fn a_run_writes_a_table_a_self_contained_page_and_csv_files() {
    let folder = Folder::new("run");
    folder.write("mine.toml", SPEC);
    let table = folder.ok(&["run", "mine.toml", "--out", "report"]);
    assert!(table.contains("one round, SRD") && table.contains("report: report/mine.html"));
    let text = folder.read("report/mine.txt");
    assert!(text.starts_with("$ srd lab run mine.toml --out report\n"), "{text}");
    assert!(table.starts_with(text.split_once('\n').unwrap().1));

    let page = folder.read("report/mine.html");
    // The first script is the chart library; the rest must not request other files.
    let (before, rest) = page.split_once("<script").unwrap();
    let own = before.to_string() + rest.split_once("</script>").unwrap().1;
    for outside in ["src=", "href=", "http://", "https://", "@import", "url("] {
        assert!(!own.contains(outside), "the page asks for something: {outside}");
    }
    assert!(own.contains("srd lab run mine.toml --out report"));
    assert!(own.contains("SRD &amp; TCP between two leaves"));
    assert!(own.contains("<td>network.shared_buffer_bytes</td>"), "parameters");

    let flows = folder.read("report/mine.csv");
    assert_eq!(flows.lines().count(), 1 + 2 * 2 * 2, "two cases, two seeds, two flows\n{flows}");
    let summary = folder.read("report/mine-summary.csv");
    let runs: Vec<Vec<&str>> = summary
        .lines()
        .skip(1)
        .map(|l| l.split('"').next_back().unwrap().split(',').collect())
        .collect();
    assert_eq!(runs.len(), 4);
    // Fields after the quoted name: the axis, transport, control, seed, hash.
    let hashes: Vec<&str> = runs.iter().map(|r| r[5]).collect();
    assert!(hashes.iter().all(|h| h.len() == 16) && hashes[0] != hashes[1], "{hashes:?}");
    assert!(page.contains(hashes[0]));
    let series = folder.read("report/mine-series.csv");
    assert!(series.starts_with("experiment,case,seed,series,what,start_us,end_us,value\n"));
    assert!(folder.read("report/mine.json").contains("\"parameters\""));
}

#[test]
fn the_same_command_gives_the_same_figures() {
    let folder = Folder::new("same");
    folder.write("mine.toml", SPEC);
    let args = ["run", "mine.toml", "--no-cost"];
    let first = folder.ok(&args);
    assert!(!first.contains("cpu-s") && first.contains("hash"));
    for threads in ["1", "3"] {
        let again = folder.ok(&[&args[..], &["--threads", threads]].concat());
        assert_eq!(again, first);
    }
    // Results depend neither on huge pages nor on unknown tunables.
    for tunables in ["glibc.malloc.hugetlb=0", "", "no.such.tunable=1"] {
        let out = folder.lab(&args).env("GLIBC_TUNABLES", tunables).output().unwrap();
        assert_eq!(told(out), first);
    }
    let fewer = folder.ok(&["run", "mine.toml", "--seeds", "1", "--case", "TCP", "--no-cost"]);
    assert!(fewer.contains("one round, TCP      1 ") && !fewer.contains("SRD      "), "{fewer}");
    let changed = folder.ok(&[&args[..], &["--set", "engine.paths=4"]].concat());
    assert_ne!(changed, first);
}

#[test]
fn errors_name_the_place_and_the_reason() {
    let folder = Folder::new("wrong");
    let run = ["run", "mine.toml"];
    let spec = |from: &str, to: &str| {
        assert!(SPEC.contains(from));
        folder.write("mine.toml", &SPEC.replace(from, to));
    };
    for (from, to, words) in [
        ("spines = 2", "spins = 2", ["mine.toml: line 8", "unknown field `spins`"]),
        ("leaves = 2", "leaves = \"two\"", ["mine.toml: line 7", "expected u32"]),
        ("spines = 2\n", "", ["network.spines is missing", "one round, SRD"]),
        ("= 200_000", "= 0", ["switch 0", "some bytes"]),
        ("shared_buffer_bytes", "shared_buffer_alpha", ["shared_buffer_alpha", "give"]),
        ("bytes = 100_000", "bytes = -1", ["mine.toml: line", "bytes"]),
        ("spines = 2", "spines = 2\nflow_gbps = 0.0", ["network.flow_gbps = 0", "leave it out"]),
        ("spines = 2", "spines = 2\nflow_gbps = 101.0", ["network.flow_gbps = 101", "at most 100"]),
    ] {
        spec(from, to);
        folder.fails(&run, 2, &words);
    }
    folder.write("mine.toml", SPEC);
    folder.fails(&["run", "mine"], 2, &["neither a file nor an experiment", "fig2"]);
    folder.fails(&["run", "mine.toml", "--set", "engine.paths"], 2, &["expected `=`"]);
    folder.fails(&["run", "mine.toml", "--case", "RDMA"], 2, &["no case contains \"RDMA\""]);
    folder.fails(&["run", "mine.toml", "--out", "mine.toml/x"], 1, &["mine.toml/x"]);
}

#[test]
fn slow_hosts_and_copa_run_and_invalid_settings_are_refused() {
    let folder = Folder::new("slow-hosts");
    let quick = ["run", "copa", "--quick", "--case", "dup-ack, selective, host 80 %, 1.5 BDP"];
    let small = ["--set", "workload.bytes=4_000_000", "--no-cost"];
    let told = folder.ok(&[&quick[..], &small[..]].concat());
    assert!(told.contains("drops at switches  at endpoints"), "{told}");
    assert!(told.contains("goodput over host bandwidth"), "{told}");
    for (change, words) in [
        ("host.drain_gbps=0", ["host.drain_gbps = 0", "above 0"]),
        ("host.drain_gbps=401", ["above network.link_gbps = 400", "leave it out"]),
        ("host.ring_bytes=4000", ["host.ring_bytes = 4000", "4186 B"]),
        ("copa.threshold=1.2", ["copa.threshold = 1.2", "0 to 1"]),
        ("copa.policy=\"window\"", ["copa.initiator", "dup-ack"]),
        ("transport=\"tcp\"", ["copa:", "transport = \"copa\""]),
    ] {
        let run = ["run", "copa", "--case", "clocked", "--set", change];
        folder.fails(&run, 2, &words);
    }
    let zero = ["run", "copa", "--case", "window 1", "--set", "copa.window=0"];
    folder.fails(&zero, 2, &["copa.window = 0", "at least 1"]);
    let slow = "fault=[{ kind = \"host-slow\", host = 0, at_us = 9, percent = 50 }]";
    folder.fails(&["run", "incast", "--set", slow], 2, &["host-slow", "[host]", "drain_gbps"]);
}

#[test]
fn htsim_files_are_read_and_unsupported_lines_are_refused() {
    let folder = Folder::new("htsim");
    folder.write(
        "m.toml",
        "name = \"m\"\ntitle = \"matrix\"\n[network]\nshape = \"topo\"\nfile = \"t.topo\"\n\
         [workload]\npattern = \"cm\"\nfile = \"m.cm\"\nunit = \"ps\"\n",
    );
    let topo = "Nodes 4\nTiers 2\nPodsize 4\nTier 0\nDownlink_speed_Gbps 100\nRadix_Down 2\n\
        Radix_Up 2\nDownlink_Latency_ns 1000\nTier 1\nDownlink_speed_Gbps 100\nRadix_Down 2\n\
        Downlink_Latency_ns 1000\n";
    let matrix = "Nodes 4\nConnections 2\n0->3 id 1 start 0 size 3000000000\n\
        1->2 id 2 start 0 size 5000\n";
    let put = |topo: &str, matrix: &str| {
        folder.write("t.topo", topo);
        folder.write("m.cm", matrix);
    };
    let run = ["run", "m.toml", "--no-cost"];
    put(topo, &matrix.replace("3000000000", "300000"));
    assert!(folder.ok(&run).lines().nth(3).unwrap().contains("  2  "), "two flows");
    let wrong = [
        (
            topo.replace("ns 1000\nTier", "ns soon\nTier"),
            matrix.to_string(),
            ["t.topo: line 8", "soon"],
        ),
        (topo.to_string(), matrix.replace("1->2", "1->7"), ["m.cm: line 4", "only 4 nodes"]),
        (topo.to_string(), matrix.replace("id 2 start", "id 2 prio 1 start"), ["line 4", "prio"]),
        (
            topo.to_string(),
            matrix.replace("5000", "99999999999999999999"),
            ["m.cm: line 4", "9999"],
        ),
    ];
    for (topo, matrix, words) in wrong {
        put(&topo, &matrix);
        folder.fails(&run, 2, &words);
    }
}

#[test]
fn seeds_are_divided_and_their_reports_joined() {
    let folder = Folder::new("merge");
    folder.write("mine.toml", SPEC);
    let run = |seeds: &str, out: &str| {
        folder.ok(&["run", "mine.toml", "--no-cost", "--seeds", seeds, "--out", out])
    };
    let (whole, first) = (run("5", "whole"), run("1..2", "a"));
    run("3..5", "b");
    let merged = folder.ok(&["merge", "b", "a", "--out", "both"]);
    // The table is that of all seeds in one run, up to the order of cases.
    let rows = |text: &str| -> Vec<String> {
        let rows = text.lines().filter(|l| l.starts_with("one round") && l.contains("  5 "));
        rows.map(String::from).collect()
    };
    let table = rows(&whole)[..2].to_vec();
    assert_eq!(rows(&merged), table);
    assert!(rows(&first).is_empty());
    for file in ["mine-summary.csv", "mine.csv"] {
        assert_eq!(folder.read(&format!("both/{file}")), folder.read(&format!("whole/{file}")));
    }
    let head = folder.read("both/mine-summary.csv");
    assert!(head.starts_with("experiment,case,axis_transport,transport,control,seed,"), "{head}");
    let json: String = folder.read("both/mine.json");
    for word in ["\"version\"", "\"commit\"", "--seeds 3..5", "\"runs\""] {
        assert!(json.contains(word), "{word}");
    }
    let text = folder.read("both/mine.txt");
    assert!(text.contains("$ srd lab merge b a --out both\nmine: SRD & TCP"), "{text}");
    // A merged report is merged again.
    run("6..6", "c");
    folder.ok(&["merge", "both", "c", "--out", "all"]);
    assert_eq!(folder.read("all/mine-summary.csv").lines().count(), 1 + 2 * 6);
    assert!(folder.read("all/mine-series.csv").starts_with("experiment,case,seed,series,"));
}

#[test]
fn reports_that_do_not_fit_together_are_refused() {
    let folder = Folder::new("unfit");
    folder.write("mine.toml", SPEC);
    folder.ok(&["run", "mine.toml", "--seeds", "1", "--out", "a"]);
    folder.fails(&["merge", "a", "a", "--out", "x"], 2, &["seed 1 is in two", "--seeds 101..200"]);
    let other =
        ["run", "mine.toml", "--seeds", "9..9", "--set", "engine.paths=16", "--out", "other"];
    folder.ok(&other);
    folder.fails(&["merge", "a", "other", "--out", "x"], 2, &["`engine`", "not merged"]);
    folder.fails(&["merge", "a", "--out", "a"], 2, &["into itself", "--out"]);
    folder.fails(&["merge", "nowhere", "--out", "x"], 2, &["nowhere"]);
    folder.fails(&["merge", ".", "--out", "x"], 2, &["no report"]);
    folder.ok(&["run", "mine.toml", "--seeds", "2..2", "--out", "b"]);
    let json = folder.read("b/mine.json");
    let version = format!("\"version\": \"{}\"", env!("CARGO_PKG_VERSION"));
    assert!(json.contains(&version));
    folder.write("b/mine.json", &json.replace(&version, "\"version\": \"0.0.0\""));
    folder.fails(&["merge", "a", "b", "--out", "x"], 2, &["version", "0.0.0", "not merged"]);
    folder.write("b/mine.json", &json);
    let rows = folder.read("b/mine-summary.csv");
    folder.write("b/mine-summary.csv", &rows.replacen(",srd,srd,2,", ",srd,srd,two,", 1));
    folder.fails(&["merge", "a", "b", "--out", "x"], 2, &["line 2", "`two` is no seed"]);
    assert!(!folder.0.join("x").exists(), "nothing is written");
    for seeds in ["0", "5..4", "x"] {
        folder.fails(&["run", "mine.toml", "--seeds", seeds], 2, &["--seeds", "101..200"]);
    }
}

#[test]
fn a_field_is_swept_from_the_command_line_and_in_a_spec() {
    let folder = Folder::new("sweep");
    folder.write("mine.toml", SPEC);
    let run = ["run", "mine.toml", "--no-cost", "--seeds", "2", "--case", "SRD", "--out", "o"];
    let sweep = ["--sweep", "network.shared_buffer_bytes=60_000,200_000,400_000"];
    let text = folder.ok(&[&run[..], &sweep[..]].concat());
    assert!(text.contains("one round, SRD, shared_buffer_bytes 60_000 "), "{text}");
    let summary = folder.read("o/mine-summary.csv");
    assert!(summary.starts_with(
        "experiment,case,axis_transport,axis_shared_buffer_bytes,value_shared_buffer_bytes,"
    ));
    assert!(folder.read("o/mine.html").contains("Largest completion time, us, by shared_buffer_b"));
    let axis = "b = { field = \"network.shared_buffer_bytes\", values = [60_000, 200_000] }";
    let spec = SPEC.replace("across = [\"transport\"]", "across = [\"b\"]");
    folder.write(
        "own.toml",
        &spec.replace(
            "[[axes.transport]]\nlabel = \"SRD\"",
            &format!("[axes]\n{axis}\n[[axes.transport]]\nlabel = \"SRD\""),
        ),
    );
    let own = folder.ok(&["run", "own.toml", "--no-cost"]);
    assert!(own.contains("one round, b 60_000 ") && own.contains("one round, b 200_000 "), "{own}");
    for (sweep, words) in [
        ("engine.paths", ["no `=`", "engine.paths=16,64,128"]),
        ("engine.paths=", ["no value", "engine.paths=16,64,128"]),
        ("engine.paths=a", ["TOML", "engine.paths=16,64,128"]),
        ("engine.pth=4", ["unknown field `pth`", "`paths`"]),
    ] {
        folder.fails(&["run", "mine.toml", "--sweep", sweep], 2, &words);
    }
}

#[test]
fn fields_and_specs_are_printed() {
    let folder = Folder::new("fields");
    let all = folder.ok(&["fields"]);
    for name in ["network.buffer_bytes", "tcp.cc", "fault (kind flap).down_us", "goal.most"] {
        assert!(all.lines().any(|l| l.starts_with(name)), "{name}");
    }
    assert!(folder.ok(&["fields", "--schema"]).contains("\"$defs\""));
    folder.fails(&["fields", "nonsense"], 2, &["nonsense"]);
    let spec = folder.ok(&["show", "fig3"]);
    folder.write("again.toml", &spec);
    let run = ["--quick", "--no-cost", "--case", "SRD"];
    let again = folder.ok(&[&["run", "again.toml"], &run[..]].concat());
    assert_eq!(again, folder.ok(&[&["run", "fig3"], &run[..]].concat()));
    folder.fails(&["show", "nonsense"], 2, &["no experiment nonsense", "fig2"]);
}

#[test]
fn comparisons_that_are_not_level_are_named() {
    let folder = Folder::new("level");
    folder.write("mine.toml", SPEC);
    let stderr = |args: &[&str]| {
        let out = folder.lab(args).output().unwrap();
        assert!(out.status.success());
        String::from_utf8(out.stderr).unwrap()
    };
    assert_eq!(stderr(&["run", "mine.toml"]), "");
    let text = stderr(&["run", "mine.toml", "--set", "tcp.mss=8948", "--out", "o"]);
    assert!(text.contains("mine.toml: not level: packets have different payloads"), "{text}");
    assert!(folder.read("o/mine.html").contains("Not level: packets have different payloads"));
    let why = "not_level=\"jumbo frames\"";
    assert_eq!(stderr(&["run", "mine.toml", "--set", "tcp.mss=8948", "--set", why]), "");
}

const TREE: &str = "name = \"placed\"
title = \"flows without packets\"
transport = \"static\"
[static]
runs = 20
[network]
shape = \"k-ary-n-tree\"
k = 4
n = 3
horizontal = 2
routing = \"circuits\"
[workload]
pattern = \"permutation\"
";

#[test]
fn flows_are_placed_without_packets_the_same_each_time() {
    let folder = Folder::new("placed");
    folder.write("a.toml", TREE);
    let run = ["run", "a.toml", "--no-cost", "--seeds", "2", "--threads"];
    let text = folder.ok(&[&run[..], &["1", "--out", "out"]].concat());
    let row = text.lines().find(|l| l.starts_with("placed ")).unwrap();
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells[1..3], ["40", "64"], "{row}");
    let largest: f64 = cells[3].parse().unwrap();
    assert!((1.7..2.3).contains(&largest), "{row}");
    assert_eq!(folder.ok(&[&run[..], &["2"]].concat()).lines().nth(5), Some(row));
    let page = folder.read("out/placed.html");
    assert!(page.contains("Congestion that flows meet, 64 hosts"), "the figure is there");
}

#[test]
fn trees_and_placements_that_make_no_sense_are_refused() {
    let folder = Folder::new("refused");
    let run = ["run", "a.toml"];
    for (from, to, words) in [
        ("runs = 20", "runs = 0", ["static.runs", "at least 1"]),
        ("k = 4", "k = 1", ["network.k = 1", "2 ports"]),
        ("n = 3", "n = 1", ["network.n = 1", "2 levels"]),
        ("k = 4", "k = 64", ["network.k = 64", "65536 hosts"]),
        ("k = 4\n", "", ["network.k is missing", "KAryNTree"]),
        ("routing = \"circuits\"", "routing = \"ecmp\"", ["network.routing", "oblivious"]),
        ("routing = \"circuits\"", "circuit_entries = 4", ["network.", "circuit"]),
        ("transport = \"static\"", "transport = \"tcp\"", ["static:", "leave the table out"]),
        (
            "\"k-ary-n-tree\"\nk = 4\nn = 3",
            "\"fat-tree\"\nk = 4",
            ["network.horizontal", "FatTree"],
        ),
        ("\"permutation\"", "\"permutations\"", ["workload.permutations", "missing"]),
        ("horizontal = 2", "ring = \"line\"", ["network.ring", "set network.horizontal"]),
        (
            "horizontal = 2",
            "ring_hops_max = 2",
            ["network.ring_hops_max", "set network.horizontal"],
        ),
        (
            "horizontal = 2",
            "horizontal = 2\nring_hops_max = 0",
            ["network.ring_hops_max = 0", "at least 1"],
        ),
    ] {
        assert!(TREE.contains(from), "{from}");
        folder.write("a.toml", &TREE.replace(from, to));
        folder.fails(&run, 2, &words);
    }
}

const PHASE: &str = "name = \"phase\"
title = \"computed rates\"
transport = \"saa\"
[saa]
rates = \"distributed\"
[network]
shape = \"k-ary-n-tree\"
k = 2
n = 3
routing = \"circuits\"
flow_control = \"credits\"
input_bytes = 40_000
[workload]
pattern = \"permutations\"
permutations = 2
bytes = 100_000
warm_bytes = 0
";

#[test]
fn a_phase_runs_and_invalid_settings_are_refused() {
    let folder = Folder::new("phase");
    folder.write("a.toml", PHASE);
    let text = folder.ok(&["run", "a.toml", "--no-cost"]);
    assert!(text.contains("the whole phase, in units") && text.contains("distributed rates:"));
    let second = "[[cases]]\ncase = \"sound\"\n[[cases]]\ncase = \"wrong\"\n";
    for (from, to, words) in [
        ("transport = \"saa\"", "transport = \"tcp\"", ["saa:", "tcp"]),
        ("transport = \"saa\"", "transport = \"srd\"", ["saa:", "srd"]),
        ("routing = \"circuits\"\n", "", ["saa.rates = \"distributed\"", "oblivious"]),
        ("flow_control = \"credits\"\ninput_bytes = 40_000\n", "", ["flow_control", "credits"]),
        (
            "input_bytes = 40_000",
            "input_bytes = 4_000",
            ["network.input_bytes", "saa.packet_bytes"],
        ),
        ("input_bytes = 40_000\n", "", ["network.input_bytes", "missing"]),
        ("k = 2", "k = 2\nhorizontal = 1\nlanes = 1", ["network.lanes", "give 2"]),
        ("k = 2", "k = 2\nlanes = 3", ["network.lanes = 3", "1 or 2"]),
        ("\"distributed\"", "\"none\"\ninjection = \"exact\"", ["saa.injection", "saa.rates"]),
        (
            "\"distributed\"",
            "\"distributed\"\nbucket_packets = 2",
            ["saa.bucket_packets", "bucket"],
        ),
        (
            "\"distributed\"",
            "\"distributed\"\nprobe_packets = 0",
            ["saa.probe_packets", "at least 1"],
        ),
        (
            "\"distributed\"",
            "\"distributed\"\npacket_bytes = 60",
            ["saa.packet_bytes", "header_bytes"],
        ),
        ("\"distributed\"", "\"fast\"", ["fast", "optimal"]),
    ] {
        assert!(PHASE.contains(from), "{from}");
        folder.write("a.toml", &PHASE.replace(from, to));
        folder.fails(&["run", "a.toml"], 2, &words);
    }
    // An error in the last case is reported before anything runs.
    folder.write("a.toml", &format!("{PHASE}{second}saa.probe_packets = 0\n"));
    let out = folder.lab(&["run", "a.toml"]).output().unwrap();
    assert_eq!((out.status.code(), out.stdout.len()), (Some(2), 0));
}

/// A file of `srd net record-noise` is a valid host of `srd lab`, whatever the machine's load.
#[test]
fn a_recorded_host_can_be_simulated() {
    let folder = Folder::new("noise");
    let path = folder.0.join("own.noise");
    let path = path.to_str().unwrap();
    let run = |args: &[&str]| {
        let out = Command::new(env!("CARGO_BIN_EXE_srd")).args(args).output().unwrap();
        let text = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
        assert!(out.status.success(), "srd {args:?}: {text}");
        text
    };
    let text = run(&["net", "record-noise", "--seconds", "1", "--out", path]);
    assert!(text.contains("use it as host = "), "{text}");
    let host = format!("host=\"{path}\"");
    let incast =
        ["lab", "run", "incast", "--quick", "--no-cost", "--case", "rounds", "--set", &host];
    let small = ["--set", "workload.bytes=20_000", "--set", "engine.defaults=\"sockets\""];
    let text = run(&[incast.as_slice(), &small].concat());
    assert!(text.contains("pkt/receive"), "{text}");
}
