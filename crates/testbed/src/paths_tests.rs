use super::*;

fn row(port: u16, predicted: u8, seen: Option<u8>) -> PortPath {
    PortPath { port, predicted, seen }
}

#[test]
fn the_table_lists_the_ports_of_each_spine() {
    let (text, right) = table(&[row(7, 1, Some(1)), row(8, 0, Some(0)), row(9, 1, Some(1))], 3);
    assert!(right);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "s0    1 ports  8");
    assert_eq!(lines[1], "s1    2 ports  7 9");
    assert!(lines[2].starts_with("s2    0 ports"));
    assert!(lines[3].starts_with("3 of 3 ports as predicted"), "{text}");
}

#[test]
fn a_port_that_took_another_way_is_named() {
    let (text, right) = table(&[row(7, 1, Some(0)), row(8, 0, None), row(9, 0, Some(0))], 2);
    assert!(!right);
    assert!(text.contains("1 of 3 ports as predicted"), "{text}");
    assert!(text.contains("port 7: predicted s1, took s0"), "{text}");
    assert!(text.contains("port 8: predicted s0, none of the uplinks took all"), "{text}");
    assert!(!text.contains("port 9:"), "{text}");
}
