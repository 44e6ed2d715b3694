//! A report in a browser: somebody zooms, points, searches and follows a finding.

use std::{fs, path::Path, process::Command};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{
    binary::{json, stepscope, text},
    skipped::skipped,
};

const SAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/traces/samples");
const DRIVER: &str = include_str!("report_page.js");
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

fn browser() -> Option<&'static str> {
    let is_there = |name: &&str| Command::new(name).arg("--version").output().is_ok_and(|said| said.status.success());
    BROWSERS.into_iter().find(is_there)
}

/// Opens the report of a sample, uses it, and tells what came of that.
fn used(browser: &str, sample: &Path, directory: &Path) -> Value {
    let output = stepscope(&["analyze", sample.to_str().unwrap(), "--format", "html", "-o", "report.html"], directory);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let page = fs::read_to_string(directory.join("report.html")).unwrap();
    // The page lets no other script in, unless it is named.
    let named = format!("script-src 'sha256-{}' ", STANDARD.encode(Sha256::digest(DRIVER)));
    let driven = page.replacen("script-src ", &named, 1).replacen(
        "</body>",
        &format!("<script type=\"module\">{DRIVER}</script>\n</body>"),
        1,
    );
    let path = directory.join("driven.html");
    fs::write(&path, driven).unwrap();
    let dumped = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1400,1000"])
        .args(["--virtual-time-budget=60000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", directory.join("profile").display()))
        .arg(format!("file://{}", path.display()))
        .output()
        .unwrap();
    let dumped = text(&dumped.stdout);
    let said = dumped.split_once("<pre id=\"said\">").expect("the page was used").1.split_once("</pre>").unwrap().0;
    let said = said.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    serde_json::from_str(&said).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

#[test]
fn a_report_can_be_zoomed_searched_and_followed() {
    let Some(browser) = browser() else {
        return skipped("browser", &format_args!("none of {} is here", BROWSERS.join(", ")));
    };
    let directory = tempfile::tempdir().unwrap();
    let sample = Path::new(SAMPLES).join("dp2-naive");
    let said = used(browser, &sample, directory.path());
    let analysis = json(&["analyze", sample.to_str().unwrap(), "--format", "json"], directory.path());
    assert_eq!(said["errors"], Value::Array(Vec::new()));
    // What was unpacked is what the analysis says: exposed communication, by rank, over the steps that count.
    for lane in said["lanes"].as_array().unwrap().iter().filter(|lane| lane["name"] == "exposed communication") {
        let steps = analysis["steps"].as_array().unwrap().iter();
        let counted = steps.filter(|step| step["rank"] == lane["rank"] && step["step"] != 0);
        let exposed: f64 = counted.map(|step| step["exposed_communication_ns"].as_f64().unwrap()).sum();
        let drawn = lane["time"].as_f64().unwrap();
        assert!((drawn / exposed - 1.0).abs() < 0.01, "{drawn} drawn of {exposed}");
    }
    let [opened, all, dragged, closer, later, back] =
        ["opened", "all", "dragged", "closer", "later", "back"].map(|view| numbers(&said[view]));
    let wide = |view: &[f64]| view[1] - view[0];
    let median = analysis["critical_path"]["step"].as_i64().unwrap();
    let step = said["steps"].as_array().unwrap().iter().find(|step| step[0] == median).unwrap();
    assert_eq!(opened, [step[1].as_f64().unwrap(), step[2].as_f64().unwrap()], "it opens at the step of the path");
    assert!(wide(&all) > wide(&opened) && wide(&dragged) < wide(&all) / 4.0 && wide(&closer) < wide(&dragged));
    assert!((wide(&later) - wide(&closer)).abs() < 1.0 && later[0] > closer[0] && back == all);
    assert!(said["tip"].as_str().unwrap().contains("rank 0, stream"), "{}", said["tip"]);
    assert!(said["touched"].as_str().unwrap().contains(" · rank 0, stream"), "{}", said["touched"]);
    assert!(said["folded"][1].as_u64() < said["folded"][0].as_u64());
    assert!(said["search"].as_str().unwrap().contains("16 on the timeline"), "{}", said["search"]);
    assert!(said["hidden"].as_u64().unwrap() > 10, "rows without it are hidden");
    let links = said["links"].as_array().unwrap();
    assert!(!links.is_empty());
    for link in links {
        let (view, from, to) = (numbers(&link["view"]), link["from"].as_f64().unwrap(), link["to"].as_f64().unwrap());
        assert!(view[0] <= from && view[1] >= to && wide(&view) < 1.3 * (to - from) && link["hidden"] == false);
    }
    assert!(said["contents"].as_array().unwrap().iter().all(|link| link == true));
}

#[test]
fn reports_of_samples_fit_into_a_mail() {
    let directory = tempfile::tempdir().unwrap();
    for sample in fs::read_dir(SAMPLES).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        let output = stepscope(&["analyze", sample.to_str().unwrap(), "--format", "html"], directory.path());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let page = text(&output.stdout);
        assert!(page.len() < 3_000_000 && page.contains("<canvas"), "{}: {} bytes", sample.display(), page.len());
    }
}
