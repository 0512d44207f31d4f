//! The page of figures in a real browser (headless Chromium), 1,200 pixels wide: nothing overlaps,
//! nothing is empty, everything can be read. Skipped with the reason where there is no Chromium.
//! And the figures as PNG files, by the command of the manual, where there is rsvg-convert.

use serde_json::Value;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names of the program, unless `SRD_CHROMIUM` gives its path.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];
/// Least height of a letter's line on the screen, in pixels.
const TEXT_PX_MIN: f64 = 10.0;

/// Measures the page and leaves what it found in an element that the browser prints. Two texts
/// overlap if they share more than a pixel in both directions.
const MEASURE: &str = r#"<script>
const found = { width: document.documentElement.scrollWidth, figures: [] };
for (const svg of document.querySelectorAll("figure svg")) {
  const frame = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll("text")];
  const boxes = texts.map((t) => t.getBoundingClientRect());
  const overlaps = [];
  const outside = [];
  boxes.forEach((a, i) => {
    if (a.left < frame.left - 1 || a.right > frame.right + 1 || a.top < frame.top - 1 ||
        a.bottom > frame.bottom + 1) {
      outside.push(texts[i].textContent);
    }
    boxes.slice(i + 1).forEach((b, j) => {
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      // Lines of text have some room above and below their letters.
      if (across > 1 && down > 3) {
        overlaps.push(texts[i].textContent + " | " + texts[i + 1 + j].textContent);
      }
    });
  });
  const drawn = [...svg.querySelectorAll(".series path, .series circle")];
  const spans = drawn.map((d) => d.getBoundingClientRect());
  const left = Math.min(...spans.map((s) => s.left));
  const right = Math.max(...spans.map((s) => s.right));
  found.figures.push({
    title: svg.querySelector("title").textContent,
    width: frame.width,
    overlaps, outside,
    texts: texts.length,
    text: Math.min(...boxes.map((b, i) =>
      texts[i].hasAttribute("transform") ? b.width : b.height)),
    drawn: drawn.length,
    span: right - left,
  });
}
const told = document.createElement("pre");
told.id = "found";
told.textContent = JSON.stringify(found);
document.body.append(told);
</script>"#;

/// A network small enough for a test, with every kind of figure.
const SPEC: &str = r#"
name = "small"
title = "every kind of figure"
time_ms_max = 2_000
across = ["size", "transport"]
[network]
shape = "leaf-spine"
leaves = 2
spines = 4
hosts_per_leaf = 4
[workload]
pattern = "leaf-pairs"
pairs = 4
flows_per_pair = 4
rounds = 3
[measure]
goodput_us = 10
flows = true
[axes]
size = { field = "workload.bytes", values = [8_192, 65_536, 524_288] }
[[axes.transport]]
label = "SRD"
[[axes.transport]]
label = "TCP"
transport = "tcp"
[[plot]]
title = "Lines"
kind = "lines"
source = "a source"
claim = "what it says, at some length, so that the text of the page breaks"
x = "size"
y = ["max us"]
series = ["transport"]
ideal = true
log_x = true
log_y = true
[[plot]]
title = "Distribution"
kind = "cdf"
source = "a source"
with = ["size 524_288"]
ideal = true
log_x = true
[[plot]]
title = "Dots"
kind = "dots"
source = "a source"
panels = "size"
series = ["transport"]
ideal = true
[[plot]]
title = "Flows"
kind = "flows"
source = "a source"
with = ["size 524_288"]
ideal = true
[[plot]]
title = "Goodput"
kind = "goodput"
source = "a source"
with = ["size 524_288"]
[[plot]]
title = "Rounds"
kind = "rounds"
source = "a source"
with = ["size 65_536"]
log_y = true
[[plot]]
title = "Uplinks"
kind = "uplinks"
source = "a source"
with = ["size 524_288"]
series = ["transport"]
"#;

fn chromium() -> Option<PathBuf> {
    std::env::var_os("SRD_CHROMIUM").map(PathBuf::from).or_else(|| program(&NAMES))
}

/// The first program of these names in PATH.
fn program(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders = std::env::split_paths(&path).collect::<Vec<_>>();
    names.iter().flat_map(|n| folders.iter().map(move |f| f.join(n))).find(|p| p.exists())
}

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What the browser finds on a page.
fn seen(browser: &Path, folder: &Path, page: &str) -> Value {
    let file = folder.join("measured.html");
    std::fs::write(&file, page.replace("</body>", &format!("{MEASURE}</body>"))).unwrap();
    let profile = folder.join("profile");
    let out = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        .args(["--no-first-run", "--window-size=1200,2000", "--virtual-time-budget=5000"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg("--dump-dom")
        .arg(format!("file://{}", file.display()))
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&out.stdout).into_owned();
    let found =
        dom.split_once("<pre id=\"found\">").and_then(|(_, rest)| rest.split_once("</pre>"));
    let stderr = String::from_utf8_lossy(&out.stderr);
    let (json, _) = found.unwrap_or_else(|| panic!("{}: {stderr}", out.status));
    let json = json.replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">");
    serde_json::from_str(&json).unwrap_or_else(|e| panic!("{e}: {json}"))
}

fn lab(args: &[&str]) {
    let args = std::iter::once("srd-lab").chain(args.iter().copied()).map(OsString::from);
    let code = srd_lab::cli::main(args);
    assert_eq!(format!("{code:?}"), format!("{:?}", std::process::ExitCode::SUCCESS));
}

#[test]
fn figures_can_be_read_in_a_browser() {
    let Some(browser) = chromium() else {
        println!("skipped: no Chromium in PATH ({}), and no SRD_CHROMIUM", NAMES.join(", "));
        return;
    };
    let folder = std::env::temp_dir().join(format!("srd-lab-browser-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let folder = Folder(folder);
    let at = |name: &str| folder.0.join(name).to_string_lossy().into_owned();
    std::fs::write(at("small.toml"), SPEC).unwrap();
    lab(&["paper", &at("small.toml"), "--seeds", "2", "--out", &at("paper")]);
    let page = std::fs::read_to_string(folder.0.join("paper/index.html")).unwrap();
    let found = seen(&browser, &folder.0, &page);
    let figures = found["figures"].as_array().unwrap();
    assert_eq!(figures.len(), 7, "{found}");
    assert!(found["width"].as_f64().unwrap() <= 1200.0, "the page is wider than the window");
    for f in figures {
        assert_eq!(
            (&f["overlaps"], &f["outside"]),
            (&Value::from([0; 0]), &Value::from([0; 0])),
            "{f}"
        );
        let number = |name: &str| f[name].as_f64().unwrap_or_else(|| panic!("{name}: {f}"));
        assert!(number("text") >= TEXT_PX_MIN, "text is too small: {f}");
        assert!(number("drawn") >= 2.0 && number("span") > 0.25 * number("width"), "empty: {f}");
        assert!(number("texts") >= 8.0, "{f}");
    }
    // Every figure is a file of its own, too.
    let files = std::fs::read_dir(folder.0.join("paper")).unwrap();
    let svgs = files.filter(|f| f.as_ref().unwrap().path().extension().is_some_and(|e| e == "svg"));
    assert_eq!(svgs.count(), 7);
}

/// The command of docs/lab.md that makes PNG files.
#[test]
fn figures_become_png_files() {
    if program(&["rsvg-convert"]).is_none() {
        println!("skipped: no rsvg-convert in PATH (package librsvg2-bin)");
        return;
    }
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lab.md");
    let manual = std::fs::read_to_string(manual).unwrap();
    let command = manual.lines().find(|line| line.contains("rsvg-convert --")).unwrap();
    let folder = std::env::temp_dir().join(format!("srd-lab-png-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let folder = Folder(folder);
    let at = |name: &str| folder.0.join(name).to_string_lossy().into_owned();
    std::fs::write(at("small.toml"), SPEC).unwrap();
    lab(&["paper", &at("small.toml"), "--seeds", "1", "--out", &at("figures")]);
    let status = Command::new("sh").args(["-c", command]).current_dir(&folder.0).status().unwrap();
    assert!(status.success(), "{command}: {status}");
    let mut pictures = 0;
    for entry in std::fs::read_dir(folder.0.join("figures")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "png") {
            let bytes = std::fs::read(&path).unwrap();
            // The header of a PNG file has its width at byte 16.
            assert_eq!((&bytes[1..4], &bytes[16..20]), (&b"PNG"[..], &2_400u32.to_be_bytes()[..]));
            assert!(bytes.len() > 20_000, "{} is as good as empty", path.display());
            pictures += 1;
        }
    }
    assert_eq!(pictures, 7);
}

#[test]
fn the_measurement_sees_what_overlaps_and_what_is_empty() {
    let Some(browser) = chromium() else {
        println!("skipped: no Chromium in PATH ({}), and no SRD_CHROMIUM", NAMES.join(", "));
        return;
    };
    let folder = std::env::temp_dir().join(format!("srd-lab-seen-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let folder = Folder(folder);
    let page = "<html><body><figure><svg width=\"300\" height=\"100\"><title>bad</title>\
        <text x=\"10\" y=\"40\">one text</text><text x=\"20\" y=\"42\">another</text>\
        <text x=\"280\" y=\"90\">beyond the edge</text></svg></figure></body></html>";
    let found = seen(&browser, &folder.0, page);
    let f = &found["figures"][0];
    assert_eq!(f["overlaps"].as_array().unwrap().len(), 1, "{f}");
    assert_eq!(f["outside"].as_array().unwrap().len(), 1, "{f}");
    assert_eq!(f["drawn"].as_f64(), Some(0.0), "{f}");
}
