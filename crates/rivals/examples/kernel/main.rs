//! The scenarios measured with a Linux kernel and with ns-3, on the simulator: side by side.
//!
//! `cargo run --release -p srd-rivals --example kernel`

#[path = "../../tests/common/mod.rs"]
mod common;

use common::{Outcome, black_hole, imbalance, incast, kernel};
use srd_fabric::{FatTree, HostId, MS, Port, SEC, US, WorldConfig};
use srd_rivals::{Algorithm, TcpConfig, TcpNet};

fn row(name: &str, measured: &str, o: &Outcome) {
    let c = &o.counters;
    println!(
        "| {name} | {:.0} | {measured} | {:.0}/{:.0}/{:.0} ({:.1}x; rounds' mean {:.1}x) | \
         {} | {} | {} |",
        o.ideal_ps as f64 / MS as f64,
        o.ms(0.5),
        o.ms(0.99),
        o.ms(1.0),
        o.ratio(),
        o.ratio_mean(),
        c.retransmits,
        c.timeouts,
        c.undone,
    );
}

fn incasts(size: u64, ms: u64, algorithm: Algorithm, measured: &str) {
    let tcp = kernel(ms * MS).algorithm(algorithm);
    let name = format!("{} kB, rto_min {ms} ms, {algorithm:?}", size / 1000);
    row(&name, measured, &incast(size, 10, 1..4, &tcp));
}

/// MPTCP as the kernel's: eight subflows, each with CUBIC.
fn mptcp(ms: u64) -> TcpConfig {
    kernel(ms * MS).subflows(8)
}

fn mptcp_incasts(size: u64, ms: u64, measured: &str) {
    let tcp = mptcp(ms);
    let name = format!("{} kB, rto_min {ms} ms, MPTCP", size / 1000);
    row(&name, measured, &incast(size, 10, 1..4, &tcp));
}

fn imbalances(spines: u32, up: u64, ms: u64, algorithm: Algorithm, measured: &str) {
    let tcp: TcpConfig = kernel(ms * MS).algorithm(algorithm);
    let up_mbps = up / 1_000_000;
    let name = format!("8→8 × 16, {spines} × {up_mbps} Mb/s, rto_min {ms} ms, {algorithm:?}");
    row(&name, measured, &imbalance(spines, up, 10, 1..6, &tcp));
}

fn holes(name: &str, seconds: u64, tcp: &TcpConfig, measured: &str) {
    let mut max = black_hole(seconds * SEC, 1..11, tcp);
    max.sort_unstable();
    let s = |ps: u64| ps as f64 / SEC as f64;
    println!(
        "| {name}, {seconds} s | {measured} | {:.2} / {:.2} / {:.2} |",
        s(max[0]),
        s(max[5]),
        s(max[9])
    );
}

/// ns-3's scenario: 48 flows of 2 MB to one host of a 128-host fat tree at 100 Gb/s, ports of
/// 900 kB, RTO floor 50 ms; from 4 hosts or from 48.
fn fat_tree(senders: u32, mss: u32, ns3: &str) {
    let port = Port::new(100_000_000_000, US);
    let tree = FatTree::k_ary(8, port, port.buffer(900_000)).build();
    let mut all = Vec::new();
    for seed in 1..6 {
        let tcp = TcpConfig::default().mss(mss);
        let mut net =
            TcpNet::new(tree.clone(), WorldConfig::new(seed), tcp).expect("a sound network");
        for flow in 0..48 {
            // Four senders lie in four pods; 48 are hosts 1 to 48.
            let src = if senders == 4 { 16 * (flow / 12 + 1) } else { flow + 1 };
            let conn = net.connect(HostId(src), HostId(0));
            net.message_at(conn, MS, 2_000_000);
        }
        assert!(net.run_done(100 * SEC), "all arrive");
        all.extend(net.messages().iter().filter_map(|m| m.fct_ps()).map(|ps| ps / US));
    }
    all.sort_unstable();
    let (median, max) = (all[all.len() / 2], all[all.len() - 1]);
    let ratio = max as f64 / 7680.0;
    println!("| {senders} senders, MSS {mss} | {ns3} | {median}/{max} ({ratio:.1}x) |");
}

fn main() {
    println!("completion times, ms: p50/p99/max (max over ideal)\n");
    println!("| scenario | ideal | kernel | here | copies | timeouts | undone |");
    println!("|-|-|-|-|-|-|-|");
    use Algorithm::{Bbr, Cubic, Reno};
    incasts(200_000, 200, Cubic, "233/673/869 (11.2x)");
    incasts(200_000, 50, Cubic, "80/213/456 (5.9x)");
    incasts(200_000, 5, Cubic, "51/117/129 (1.7x)");
    incasts(2_000_000, 200, Cubic, "560/1385/1512 (2.0x)");
    incasts(2_000_000, 50, Cubic, "611/1087/1176 (1.5x)");
    incasts(200_000, 200, Reno, "232/720/1492 (19x)");
    incasts(200_000, 50, Reno, "88/423/425 (5.5x)");
    incasts(200_000, 5, Reno, "52/122/131 (1.7x)");
    incasts(2_000_000, 200, Reno, "557/1718/1877 (2.4x)");
    incasts(2_000_000, 50, Reno, "568/1021/1060 (1.4x)");
    incasts(200_000, 200, Bbr, "238/1007/1260 (16x)");
    incasts(200_000, 50, Bbr, "94/684/738 (9.5x)");
    incasts(200_000, 5, Bbr, "58/136/323 (4.2x)");
    incasts(2_000_000, 200, Bbr, "822/2008/4270 (5.5x)");
    incasts(2_000_000, 50, Bbr, "538/1994/3195 (4.1x)");
    imbalances(8, 400_000_000, 50, Cubic, "158/196/213 (1.3x)");
    imbalances(16, 200_000_000, 50, Cubic, "163/189/194 (1.2x)");
    imbalances(16, 200_000_000, 200, Cubic, "158/218/475 (2.95x)");
    imbalances(8, 400_000_000, 50, Bbr, "154/182/334 (2.1x)");
    imbalances(16, 200_000_000, 50, Bbr, "160/194/202 (1.3x)");
    imbalances(16, 200_000_000, 200, Bbr, "156/189/542 (3.4x)");
    mptcp_incasts(200_000, 200, "266/1070/1466 (19x)");
    mptcp_incasts(200_000, 50, "199/484/840 (10.9x)");
    mptcp_incasts(200_000, 5, "77/213/1032 (13x)");
    mptcp_incasts(2_000_000, 200, "1528/3114/3344 (4.3x)");
    mptcp_incasts(2_000_000, 50, "1120/2017/2716 (3.5x)");
    for (spines, up, ms, measured) in [
        (8, 400_000_000, 50, "167/200/306 (1.9x)"),
        (16, 200_000_000, 50, "173/197/211 (1.3x)"),
        (16, 200_000_000, 200, "169/186/188 (1.17x)"),
    ] {
        let name = format!("8→8 × 16, {spines} × {} Mb/s, rto_min {ms} ms, MPTCP", up / 1_000_000);
        row(&name, measured, &imbalance(spines, up, 10, 1..6, &mptcp(ms)));
    }
    println!("\nlongest flow after a black hole, s: kernel, here least/median/most of 10 seeds\n");
    println!("| | kernel | here |\n|-|-|-|");
    holes("IPv4", 1, &kernel(200 * MS), "2.05");
    holes("IPv4", 3, &kernel(200 * MS), "4.2");
    holes("IPv6 flow labels", 3, &kernel(200 * MS).rehash_on_rto(true), "1.67");
    let bbr = kernel(200 * MS).algorithm(Bbr);
    holes("IPv4, BBR", 1, &bbr, "1.7");
    holes("IPv4, BBR", 3, &bbr, "5.0");
    holes("IPv4, MPTCP", 1, &mptcp(200), "1.5");
    holes("IPv4, MPTCP", 3, &mptcp(200), "2.5");
    println!(
        "\nincast of 48 × 2 MB at 100 Gb/s, median/max in µs over 5 seeds: ns-3 (one run), here\n"
    );
    println!("| | ns-3 CUBIC | here |\n|-|-|-|");
    fat_tree(4, 8948, "53414/151178 (19.7x)");
    fat_tree(48, 8948, "100282/103466 (13.5x)");
    fat_tree(4, 1448, "7936/7975 (1.04x)");
    fat_tree(48, 1448, "6895/52319 (6.8x)");
}
