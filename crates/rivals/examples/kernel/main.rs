//! The scenarios measured with a Linux kernel, on the simulator: side by side.
//!
//! `cargo run --release -p srd-rivals --example kernel`

#[path = "../../tests/common/mod.rs"]
mod common;

use common::{Outcome, black_hole, imbalance, incast, kernel};
use srd_fabric::{MS, SEC};
use srd_rivals::{Algorithm, TcpConfig};

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

fn imbalances(spines: u32, up: u64, ms: u64, measured: &str) {
    let tcp: TcpConfig = kernel(ms * MS);
    let name = format!("8→8 × 16, {spines} × {} Mb/s, rto_min {ms} ms", up / 1_000_000);
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

fn main() {
    println!("completion times, ms: p50/p99/max (max over ideal)\n");
    println!("| scenario | ideal | kernel | here | copies | timeouts | undone |");
    println!("|-|-|-|-|-|-|-|");
    use Algorithm::{Cubic, Reno};
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
    imbalances(8, 400_000_000, 50, "158/196/213 (1.3x)");
    imbalances(16, 200_000_000, 50, "163/189/194 (1.2x)");
    imbalances(16, 200_000_000, 200, "158/218/475 (2.95x)");
    println!("\nlongest flow after a black hole, s: kernel, here least/median/most of 10 seeds\n");
    println!("| | kernel | here |\n|-|-|-|");
    holes("IPv4", 1, &kernel(200 * MS), "2.05");
    holes("IPv4", 3, &kernel(200 * MS), "4.2");
    holes("IPv6 flow labels", 3, &kernel(200 * MS).rehash_on_rto(true), "1.67");
}
