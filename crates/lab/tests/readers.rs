//! Properties of the readers: written files are read back unchanged, and no input makes them panic.

use proptest::prelude::*;
use srd_fabric::htsim::{CmFile, StartUnit, TopoFile};
use srd_lab::spec::SpecFile;
use std::path::Path;

fn config() -> ProptestConfig {
    ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_matrix_is_read_back_as_written(
        flows in prop::collection::vec((0u32..50, 1u32..50, any::<u64>(), 1..=u64::MAX), 0..20)
    ) {
        let mut text = format!("Nodes 50\nConnections {}\n", flows.len());
        for (i, (src, step, start, size)) in flows.iter().enumerate() {
            let dst = (src + step) % 50;
            text += &format!("{src}->{dst} id {i} start {start} size {size}\n");
        }
        let cm = CmFile::parse(&text, StartUnit::Picoseconds).unwrap();
        prop_assert_eq!(cm.connections.len(), flows.len());
        for (c, (src, step, start, size)) in cm.connections.iter().zip(&flows) {
            prop_assert_eq!((c.src, c.dst), (*src, (src + step) % 50));
            prop_assert_eq!((c.start_ps, c.bytes), (Some(*start), *size));
        }
    }

    #[test]
    fn no_text_makes_the_readers_panic(text in "([A-Za-z0-9_>.# -]{0,30}\n){0,12}") {
        let _ = CmFile::parse(&text, StartUnit::Microseconds);
        let _ = TopoFile::parse(&text);
        let _ = SpecFile::parse(&text, Path::new("."), true);
    }

    #[test]
    fn whatever_topology_is_accepted_can_be_simulated(
        (down, up, pods, bundle) in (1u32..5, 1u32..5, 1u32..4, 1u32..3),
        (leaves, cores) in (1u32..4, 1u32..4),
    ) {
        let text = format!(
            "Nodes {}\nTiers 3\nPodsize {}\nTier 0\nDownlink_speed_Gbps 100\nRadix_Down {down}\n\
             Radix_Up {up}\nDownlink_Latency_ns 1000\nTier 1\nDownlink_speed_Gbps 100\n\
             Radix_Down {}\nRadix_Up {cores}\nDownlink_Latency_ns 1000\nBundle {bundle}\n\
             Tier 2\nDownlink_speed_Gbps 100\nRadix_Down {pods}\nDownlink_Latency_ns 1000\n",
            pods * leaves * down, leaves * down, leaves * bundle,
        );
        if let Ok(file) = TopoFile::parse(&text) {
            let topo = file.build(1_000_000, srd_fabric::Ecn::OFF);
            prop_assert!(topo.validate().is_ok());
            prop_assert_eq!(topo.hosts(), pods * leaves * down);
        }
    }
}
