//! `ropewalk plan` as a user calls it.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use assert_cmd::Command;

fn plan(arguments: &[&str]) -> assert_cmd::assert::Assert {
    let mut command = Command::cargo_bin("ropewalk").unwrap();
    command.arg("plan").args(arguments).assert()
}

fn json(arguments: &[&str]) -> serde_json::Value {
    let output = plan(&[arguments, &["--json"]].concat()).success();
    serde_json::from_slice(&output.get_output().stdout).unwrap()
}

fn expected(answer: &serde_json::Value, policy: &str) -> f64 {
    let rows = answer["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["policy"] == policy).unwrap();
    row["expected_total_s"].as_f64().unwrap()
}

/// The paper's interval comes out, and no other formula promises a shorter run.
#[test]
fn the_interval_is_the_papers() {
    let answer = json(&["--save", "0.6", "--mtbf", "25", "--total", "214"]);
    assert!((answer["interval_s"].as_f64().unwrap() - 5.084745).abs() < 1e-6);
    let best = expected(&answer, "equation 5");
    assert!(best > 214.0 && best <= expected(&answer, "Young"));
}

/// A log of failures stands for a mean time between failures, with its uncertainty; a malformed one is refused with its
/// line.
#[test]
fn a_log_of_failures_is_planned_with() {
    let folder = tempfile::tempdir().unwrap();
    let log = |text: &str| {
        let path = folder.path().join("failures");
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let written =
        log("State|End\nNODE_FAIL|1970-01-01T00:00:50\nCOMPLETED|Unknown\nNODE_FAIL|1970-01-01T00:00:25\n");
    let answer = json(&["--save", "0.6", "--failures", &written, "--total", "214"]);
    assert_eq!(answer["mtbf_s"], 25.0);
    assert_eq!(answer["from_log"]["failures"], 2);
    let end = |name: &str| answer["from_log"][name].as_f64().unwrap();
    assert!((end("mtbf_low_s") - 6.777).abs() < 1e-3 && (end("mtbf_high_s") - 987.4).abs() < 0.1);
    let refused = plan(&["--save", "0.6", "--failures", &log("0\nsoon\n")]).code(2);
    let told = String::from_utf8_lossy(&refused.get_output().stderr).into_owned();
    assert!(told.contains("line 2: expected a time"), "{told}");
    plan(&["--save", "0.6"]).code(2);
    plan(&["--save", "0.6", "--mtbf", "25", "--failures", &written]).code(2);
}

/// With steps of equal length the default is as good as the best plan, and better than the paper's rule.
#[test]
fn steps_of_equal_length_are_planned() {
    let answer = json(&[
        "--save", "0.6", "--mtbf", "25", "--step", "2.6", "--total", "2600",
    ]);
    let (best, rate) = (expected(&answer, "best plan"), expected(&answer, "rate"));
    assert!(rate / best < 1.0001, "{rate}, not {best}");
    assert!(expected(&answer, "paper") / best > 1.02);
    assert!(expected(&answer, "never") > 1e6);
}

/// A fast way to save that survives most failures makes a run shorter, on paper and rehearsed; one that is
/// nearly as slow is not used, and one of which nobody knows what it survives is refused.
#[test]
fn two_levels_are_planned() {
    let run = ["--save", "0.6", "--mtbf", "25", "--total", "2000"];
    let told = [&run[..], &["--fast-save", "0.06", "--host-mtbf", "250"]].concat();
    let answer = json(&told);
    assert_eq!(answer["recommended"], "two levels");
    let (two, one) = (expected(&answer, "two levels"), expected(&answer, "equation 5"));
    assert!(
        two - 2000.0 < 0.8 * (one - 2000.0),
        "{two}, not much less than {one}"
    );
    let same = json(&[&run[..], &["--fast-save", "0.06", "--fast-covers", "0.9"]].concat());
    assert_eq!(same, answer);

    let rehearsed = Command::cargo_bin("ropewalk")
        .unwrap()
        .arg("rehearse")
        .args(&told)
        .args(["--runs", "100", "--json"])
        .assert()
        .success();
    let rehearsed: serde_json::Value = serde_json::from_slice(&rehearsed.get_output().stdout).unwrap();
    let rows = rehearsed["rows"].as_array().unwrap();
    let mean = |row: &serde_json::Value| row["mean_total_s"].as_f64().unwrap();
    let [.., one, two] = &rows[..] else {
        panic!("{rows:?}");
    };
    assert_eq!(two["policy"], "the same, two levels");
    assert!(mean(two) < mean(one), "{two} {one}");

    let slow = json(&[&run[..], &["--fast-save", "0.59", "--fast-covers", "0.5"]].concat());
    assert_eq!(slow["fast_pays"], false);
    assert_eq!(slow["recommended"], "equation 5");
    plan(&[&run[..], &["--fast-save", "0.06"]].concat()).code(2);
}

/// Where one can save only at the ends of steps, so it is with two levels: they are recommended only if they
/// take less than one level does then, and a rehearsal takes as long as they are expected to.
#[test]
fn two_levels_are_planned_in_whole_steps() {
    let fast = [
        "--save",
        "0.6",
        "--mtbf",
        "25",
        "--fast-save",
        "0.06",
        "--fast-covers",
        "0.8",
    ];
    let long = json(&[&fast[..], &["--step", "10", "--total", "214"]].concat());
    assert_eq!(long["fast_pays"], false, "{long}");
    assert_eq!(long["recommended"], "rate");
    assert!(expected(&long, "two levels") > expected(&long, "rate"), "{long}");

    let short = json(&[&fast[..], &["--step", "1", "--total", "2000"]].concat());
    assert_eq!(short["recommended"], "two levels", "{short}");
    let row = short["rows"].as_array().unwrap().last().unwrap();
    assert_eq!(
        row["remark"], "every 2 steps, one that survives all every 10",
        "{row}"
    );
    assert_eq!(row["saves"], 999);
    let (two, one) = (expected(&short, "two levels"), expected(&short, "rate"));
    assert!(two - 2000.0 < 0.9 * (one - 2000.0), "{two}, not less than {one}");

    let mut command = Command::cargo_bin("ropewalk").unwrap();
    let rehearsed = command
        .arg("rehearse")
        .args(fast)
        .args(["--step", "1", "--total", "2000", "--runs", "200", "--json"])
        .assert()
        .success();
    let rehearsed: serde_json::Value = serde_json::from_slice(&rehearsed.get_output().stdout).unwrap();
    let mean = rehearsed["rows"].as_array().unwrap().last().unwrap()["mean_total_s"].as_f64();
    assert!(
        (mean.unwrap() / two - 1.0).abs() < 0.03,
        "{mean:?}, not about {two}"
    );
}

/// A trace is read from the last column of a file, and what is no number is named by its line.
#[test]
fn traces_are_read_from_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.csv");
    std::fs::write(&path, "step,seconds\n1,2.5\n2, 1.5\n\n3\t4\n").unwrap();
    let file = path.to_str().unwrap();
    let answer = json(&["--save", "0.6", "--mtbf", "25", "--steps", file]);
    assert_eq!(answer["total_s"].as_f64(), Some(8.0));
    std::fs::write(&path, "1\nx\n").unwrap();
    let refused = plan(&["--save", "0.6", "--mtbf", "25", "--steps", file]).code(2);
    let text = String::from_utf8_lossy(&refused.get_output().stderr).into_owned();
    assert!(
        text.contains("line 2: expected a positive number of seconds, found \"x\""),
        "{text}"
    );
}

/// The first step counts behind a byte order mark too, and one that is mistyped is no heading.
#[test]
fn the_first_step_of_a_trace_counts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.csv");
    let words = ["--save", "0.6", "--mtbf", "25", "--steps", path.to_str().unwrap()];
    for (text, total) in [("\u{feff}100\n2\n2\n", 104.0), ("\u{feff}seconds\n2\n2\n", 4.0)] {
        std::fs::write(&path, text).unwrap();
        assert_eq!(json(&words)["total_s"].as_f64(), Some(total), "{text:?}");
    }
    for first in ["2.x5", "-x", " .5s", "1,x"] {
        std::fs::write(&path, format!("{first}\n2\n")).unwrap();
        let refused = plan(&words).code(2);
        let text = String::from_utf8_lossy(&refused.get_output().stderr).into_owned();
        assert!(
            text.contains("line 1: expected a positive number of seconds"),
            "{text}"
        );
    }
}

/// The table says what to do.
#[test]
fn the_table_ends_with_a_recommendation() {
    for (words, advice) in [
        (
            "--save 0.6 --mtbf 25 --step 2.1 --total 214",
            "Save about every 4.284 s of computing (policy: rate). 214 s of computing then",
        ),
        (
            "--save 0.6 --mtbf 25 --total 214",
            "Save about every 5.085 s of computing (policy: equation 5).",
        ),
        (
            "--save 60 --mtbf 1e6 --step 10 --total 200",
            "Do not save: the run is too short for it (policy: rate). 200 s of computing then take about 200 s.",
        ),
        (
            "--save 60 --mtbf 1e6 --total 200",
            "Do not save: the run is too short for it (policy: equation 5). 200 s of computing then take about 200 s.",
        ),
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        let shown = plan(&words).success();
        let text = String::from_utf8_lossy(&shown.get_output().stdout).into_owned();
        assert!(text.contains(advice), "{text}");
        let answer = json(&words);
        let rows = answer["rows"].as_array().unwrap();
        let row = rows
            .iter()
            .find(|row| row["policy"] == answer["recommended"])
            .unwrap();
        match advice.starts_with("Save") {
            true => assert_eq!(answer["recommended_interval_s"], row["interval_s"], "{answer}"),
            false => assert!(answer["recommended_interval_s"].is_null(), "{answer}"),
        }
    }
    plan(&["--save", "0", "--mtbf", "25"]).code(2);
}

/// A save that is written in the background has the interval of its blocking part, and costs more the later
/// it protects; rehearsals say so too.
#[test]
fn saves_in_the_background_are_planned() {
    let words = ["--save", "0.2", "--mtbf", "25", "--step", "0.5", "--total", "214"];
    let total = |commit| {
        let answer = json(&[&words[..], &["--commit", commit]].concat());
        assert!(
            (answer["interval_s"].as_f64().unwrap() - 3.030374).abs() < 1e-6,
            "{answer}"
        );
        expected(&answer, "rate")
    };
    let [at_once, later] = ["0", "1.5"].map(total);
    assert!(later > at_once && later < at_once * 1.1, "{at_once}, {later}");
    plan(&[&words[..], &["--commit=-1"]].concat()).code(2);
    let mut command = Command::cargo_bin("ropewalk").unwrap();
    let words = "rehearse --save 0.2 --mtbf 25 --step 0.5 --total 214 --commit 1.5 --runs 2000 --json";
    let output = command.args(words.split(' ')).assert().success();
    let answer: serde_json::Value = serde_json::from_slice(&output.get_output().stdout).unwrap();
    let row = &answer["rows"][1];
    assert_eq!(row["policy"], "rate");
    let of = |name: &str| row[name].as_f64().unwrap();
    assert!((of("expected_total_s") - later).abs() < 1e-9, "{row}");
    assert!(
        (of("mean_total_s") - later).abs() < 2.0 * of("confidence_95_s"),
        "{row}"
    );
}

/// Times have units where they are read and where they are shown, and very much is told in times.
#[test]
fn times_have_units() {
    let [plain, units] = [["43200", "30"], ["12h", "30s"]]
        .map(|[mtbf, save]| json(&["--mtbf", mtbf, "--save", save, "--total", "2d"]));
    assert_eq!(plain, units);
    let shown = plan(&["--mtbf", "1d", "--save", "5m", "--total", "30d", "--step", "12h"]).success();
    let text = String::from_utf8_lossy(&shown.get_output().stdout).into_owned();
    assert!(
        text.contains("2592000 s (30.00 days) of computing then take"),
        "{text}"
    );
    assert!(text.contains("every 12.00 h of computing"), "{text}");
    let often = plan(&["--save", "0.6", "--mtbf", "25", "--step", "1", "--total", "214"]).success();
    let text = String::from_utf8_lossy(&often.get_output().stdout).into_owned();
    assert!(text.contains(" times "), "{text}");
    plan(&["--mtbf", "1 parsec", "--save", "30"]).code(2);
}

/// The picture has a bar for each policy, and comes beside the table or the JSON.
#[test]
fn a_plan_is_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("plan.svg");
    let words = [
        "--save", "0.6", "--mtbf", "25", "--step", "1", "--total", "214", "--svg",
    ];
    let answer = json(&[&words[..], &[picture.to_str().unwrap()]].concat());
    let drawn = std::fs::read_to_string(&picture).unwrap();
    assert!(drawn.starts_with("<svg xmlns") && drawn.trim_end().ends_with("</svg>"));
    // Each row has a badge in the picture and one in the legend.
    let badges = drawn.matches("<text class=\"badge\"").count();
    assert_eq!(badges, 2 * answer["rows"].as_array().unwrap().len());
    // "never" is the only row that is cut off; the line of equal intervals leaves the frame once more.
    assert_eq!(drawn.matches(", beyond the picture").count(), 1, "{drawn}");
    assert!(
        drawn.contains("class=\"cut\"") && drawn.contains("class=\"best-line\""),
        "{drawn}"
    );
    let expected = expected(&answer, "rate");
    assert!(drawn.contains(&format!("{expected:.2} s")), "{drawn}");
}

/// The rehearsed times come near to the expected ones, one seed gives one answer, and the picture has a bar
/// for each way.
#[test]
fn rehearsals_come_near_to_what_is_expected() {
    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("rows.svg");
    let rehearse = || {
        let mut command = Command::cargo_bin("ropewalk").unwrap();
        let words = "rehearse --save 0.6 --mtbf 25 --step 1 --total 214 --runs 2000 --seed 3 --json --svg";
        let output = command.args(words.split(' ')).arg(&picture).assert().success();
        let text = output.get_output().stdout.clone();
        serde_json::from_slice::<serde_json::Value>(&text).unwrap()
    };
    let answer = rehearse();
    assert_eq!(answer, rehearse());
    let rows = answer["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 8);
    for row in rows {
        let of = |name: &str| row[name].as_f64();
        let (mean, interval) = (of("mean_total_s").unwrap(), of("confidence_95_s").unwrap());
        // Twice as wide as the interval in which it is in nineteen of twenty cases.
        if let Some(expected) = of("expected_total_s") {
            assert!((mean - expected).abs() < 2.0 * interval, "{row}");
        }
    }
    let drawn = std::fs::read_to_string(&picture).unwrap();
    assert_eq!(drawn.matches("class=\"bar\"").count(), 8);
    assert_eq!(drawn.matches("class=\"error\"").count(), 8);
}

/// Runs that would never be done are not rehearsed: with the best plan they are refused, and other ways are
/// left out by name.
#[test]
fn what_is_hopeless_is_not_rehearsed() {
    let rehearse = |words: &str| {
        let mut command = Command::cargo_bin("ropewalk").unwrap();
        command.timeout(std::time::Duration::from_secs(60));
        command.arg("rehearse").args(words.split(' ')).assert()
    };
    for (words, told) in [
        (
            "--save 30 --mtbf 2 --step 1 --runs 2 --total 20",
            "even with the best plan, 20.0 s of computing would take",
        ),
        (
            "--save 0.6 --mtbf 25 --step 1 --commit 1000 --runs 10",
            "even with the best plan, 2500.0 s of computing would take",
        ),
        (
            "--save 0.6 --mtbf 25 --restore 1e6 --runs 10 --total 100",
            " s of computing would take for ever, which is not rehearsed",
        ),
        // Twenty failures each if no work were lost, and sixteen times as many since most of it is.
        (
            "--save 1 --mtbf 1 --step 1 --runs 100000 --total 20",
            "give fewer --runs or a shorter --total",
        ),
    ] {
        let refused = rehearse(words).code(2);
        let text = String::from_utf8_lossy(&refused.get_output().stderr).into_owned();
        assert!(
            text.starts_with("ropewalk rehearse: ") && text.contains(told),
            "{text}"
        );
        assert_eq!(text.lines().count(), 1, "{text}");
    }

    // Segments of two steps are hardly ever done without a failure.
    let words = "--save 1 --mtbf 1 --step 3 --total 30 --runs 10";
    let shown = rehearse(words).success();
    let text = String::from_utf8_lossy(&shown.get_output().stdout).into_owned();
    let told = "half as often, expected to take ";
    assert!(
        text.contains("Left out, since it would take too long to rehearse: "),
        "{text}"
    );
    assert!(text.contains(told), "{text}");
    let words = "--save 1 --mtbf 5 --step 3 --total 30 --runs 10 --json";
    let answer = rehearse(words).success();
    let answer: serde_json::Value = serde_json::from_slice(&answer.get_output().stdout).unwrap();
    assert_eq!(answer["left_out"], serde_json::json!([]), "{answer}");
    assert_eq!(answer["rows"].as_array().unwrap().len(), 8);
}

/// Where the answer cannot be written, that is said, and is a failure.
#[test]
fn a_full_output_is_told() {
    for command in ["plan", "rehearse", "info"] {
        let costs: &[&str] = match command {
            "info" => &[],
            _ => &["--save", "0.6", "--mtbf", "25", "--step", "2", "--total", "50"],
        };
        for form in [&[][..], &["--json"]] {
            let output = std::process::Command::new(env!("CARGO_BIN_EXE_ropewalk"))
                .arg(command)
                .args(costs)
                .args(form)
                .stdout(std::fs::File::options().write(true).open("/dev/full").unwrap())
                .output()
                .unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(
                matches!(output.status.code(), Some(1 | 2)),
                "{command}: {}",
                output.status
            );
            let expected = format!("ropewalk {command}: cannot write to the standard output: ");
            assert!(said.starts_with(&expected), "{said}");
        }
    }
}
