fn main() {
    let a: Vec<u64> = std::env::args().skip(1).map(|s| s.parse().unwrap()).collect();
    let trace = a.len() > 2;
    for seed in a[0]..a[0] + a[1] {
        let s = srd_check::Scenario::from_seed(seed, srd_check::Limits::NONE);
        let r = std::panic::catch_unwind(|| {
            srd_check::run(&s, srd_check::Options { trace, ..Default::default() })
        });
        match r {
            Ok(o) => {
                if let Some(t) = &o.trace { for l in &t.lines { println!("{l}"); } }
                if let Some(v) = o.violation {
                    println!("seed {seed} {:?} {}: {v:?}", s.workload, s.classes);
                }
            }
            Err(_) => println!("seed {seed} PANIC {:?} {}", s.workload, s.classes),
        }
    }
}
