//! Checks the dependencies between packages.

use super::{Finding, settings::Settings, tree::Tree};
use std::collections::BTreeSet;
use toml::de::{DeTable, DeValue};

/// Contents of a manifest.
struct Manifest<'a> {
    path: &'a str,
    package: String,
    dependencies: Vec<String>,
    dependencies_tests: Vec<String>,
    lints: bool,
}

/// All rules of this module.
pub fn check(tree: &Tree, settings: &Settings, out: &mut Vec<Finding>) {
    let mut manifests = Vec::new();
    for (path, text) in tree.ending("Cargo.toml") {
        match parse(path, text) {
            Ok(Some(m)) => manifests.push(m),
            Ok(None) => {}
            Err(e) => out.push(Finding::new(path, 0, e)),
        }
    }
    let ours: BTreeSet<&str> = manifests.iter().map(|m| m.package.as_str()).collect();
    for m in &manifests {
        if !m.lints {
            out.push(Finding::new(m.path, 0, "needs `[lints] workspace = true`"));
        }
        let Some(below) = settings.layers.get(&m.package) else {
            let message = format!("name `{}` in [layers] of xtask/tidy.toml", m.package);
            out.push(Finding::new(m.path, 0, message));
            continue;
        };
        let tests = settings.layers_tests.get(&m.package);
        for (list, in_tests) in [(&m.dependencies, false), (&m.dependencies_tests, true)] {
            for name in list.iter().filter(|d| ours.contains(d.as_str())) {
                let more = in_tests && tests.is_some_and(|t| t.contains(name));
                // The tests of a package may use the package itself.
                if !below.contains(name) && !more && *name != m.package {
                    let message = format!("`{}` must not depend on `{name}`", m.package);
                    out.push(Finding::new(m.path, 0, message));
                }
            }
        }
    }
}

fn parse<'a>(path: &'a str, text: &'a str) -> Result<Option<Manifest<'a>>, String> {
    let table = DeTable::parse(text).map_err(|e| e.to_string())?;
    let table = table.get_ref();
    let Some(package) = table.get("package").and_then(|p| p.get_ref().as_table()) else {
        return Ok(None);
    };
    // A package that is a workspace of its own (fuzz targets, libraries compared) may depend on
    // every package, and nothing depends on it.
    if table.contains_key("workspace") {
        return Ok(None);
    }
    let name = package.get("name").and_then(|n| n.get_ref().as_str());
    let mut m = Manifest {
        path,
        package: name.ok_or("the package has no name")?.into(),
        dependencies: Vec::new(),
        dependencies_tests: Vec::new(),
        lints: false,
    };
    let lints = table.get("lints").and_then(|l| l.get_ref().get("workspace"));
    m.lints = matches!(lints.map(|w| w.get_ref()), Some(DeValue::Boolean(true)));
    add_all(table, &mut m);
    // [target.'cfg(…)'.dependencies]
    let targets = table.get("target").and_then(|t| t.get_ref().as_table());
    for target in targets.into_iter().flat_map(|t| t.values()) {
        if let Some(target) = target.get_ref().as_table() {
            add_all(target, &mut m);
        }
    }
    Ok(Some(m))
}

fn add_all(table: &DeTable<'_>, m: &mut Manifest<'_>) {
    add(table, "dependencies", &mut m.dependencies);
    add(table, "build-dependencies", &mut m.dependencies);
    add(table, "dev-dependencies", &mut m.dependencies_tests);
}

/// Names of the packages in a section, including renamed ones.
fn add(table: &DeTable<'_>, section: &str, out: &mut Vec<String>) {
    let Some(list) = table.get(section).and_then(|s| s.get_ref().as_table()) else { return };
    for (name, how) in list {
        let renamed = how.get_ref().get("package").and_then(|p| p.get_ref().as_str());
        out.push(renamed.map_or_else(|| name.get_ref().to_string(), String::from));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYERS: &str =
        "[layers]\nwire = []\ncore = [\"wire\"]\n[layers_tests]\nwire = [\"core\"]";
    const WIRE: &str = "[package]\nname = \"wire\"\n[lints]\nworkspace = true\n";
    const CORE: &str = "[package]\nname = \"core\"\n[lints]\nworkspace = true\n[dependencies]\n";

    fn messages(wire: &str, core: &str) -> Vec<String> {
        let tree = Tree::sample(&[("crates/wire/Cargo.toml", wire), ("core/Cargo.toml", core)]);
        let mut out = Vec::new();
        check(&tree, &Settings::parse(LAYERS).unwrap(), &mut out);
        out.into_iter().map(|f| f.message).collect()
    }

    #[test]
    fn a_workspace_of_its_own_has_its_own_rules() {
        let own = "[package]\nname = \"other\"\n[dependencies]\nwire = \"1\"\n";
        assert_eq!(messages(WIRE, own).len(), 2, "no lints, and no layer");
        assert!(messages(WIRE, &format!("{own}[workspace]\n")).is_empty());
    }

    #[test]
    fn dependencies_point_one_way() {
        let core = format!("{CORE}wire.workspace = true\nlibc = \"0.2\"\n");
        assert!(messages(WIRE, &core).is_empty());
        let back = [
            "[dependencies]\ncore = { path = \"../core\" }",
            "[target.'cfg(unix)'.dependencies]\nc = { package = \"core\", version = \"1\" }",
            "[build-dependencies]\ncore = \"1\"",
        ];
        for section in back {
            let wire = format!("{WIRE}{section}\n");
            assert_eq!(messages(&wire, &core), ["`wire` must not depend on `core`"], "{section}");
        }
        let tests = format!("{WIRE}[dev-dependencies]\ncore = \"1\"\n");
        assert!(messages(&tests, &core).is_empty(), "allowed for tests");
    }

    #[test]
    fn every_package_is_named_and_linted() {
        let other = "[package]\nname = \"other\"\n";
        let got = messages(WIRE, other);
        assert!(got.iter().any(|m| m.contains("lints")));
        assert!(got.iter().any(|m| m.contains("name `other`")));
    }
}
