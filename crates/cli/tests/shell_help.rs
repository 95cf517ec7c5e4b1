//! The output of `ropewalk completions` and `ropewalk man`, for shells and readers.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use std::{fs, process::Command};

fn ropewalk(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_ropewalk"))
        .args(arguments)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// The completions that bash offers for the last of these words.
fn completed(words: &[&str]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("ropewalk");
    fs::write(&script, ropewalk(&["completions", "bash"])).unwrap();
    let [.., before, last] = words else {
        panic!("a command and a word");
    };
    let words = words.join(" ");
    let call = format!(
        "set -eu; . {}; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
         complete -p ropewalk > /dev/null; _ropewalk ropewalk '{last}' '{before}'; \
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        script.display()
    );
    let output = Command::new("bash").args(["-c", &call]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.is_empty(), "{stderr}");
    let offered = String::from_utf8(output.stdout).unwrap();
    offered.lines().map(str::to_owned).collect()
}

/// bash takes the script, and completes commands, options of `run`, and their values.
#[test]
fn bash_completes_words() {
    assert_eq!(completed(&["ropewalk", "ru"]), ["run"]);
    assert_eq!(completed(&["ropewalk", "run", "--on-f"]), ["--on-failure"]);
    assert_eq!(
        completed(&["ropewalk", "run", "--on-failure", "re"]),
        ["respawn", "restart"]
    );
}

/// The help of `run` fits into 80 columns, and begins with examples.
#[test]
fn help_fits_the_terminal() {
    let help = ropewalk(&["run", "--help"]);
    let wide: Vec<_> = help.lines().filter(|line| line.chars().count() > 80).collect();
    assert!(wide.is_empty(), "{wide:#?}");
    assert!(help.contains("Examples:\n  ropewalk run -n 4 "), "{help}");
}

/// The help of other commands ends with the examples of their pages, also below `bench`, and names no option twice.
#[test]
fn help_has_examples() {
    for (words, example) in [
        (&["--help"][..], "ropewalk run -n 4 ./ring"),
        (&["reduce", "--help"], "ropewalk reduce --op "),
        (&["bench", "reduce", "-h"], "ropewalk bench reduce "),
    ] {
        let help = ropewalk(words);
        let examples = help
            .split_once("\nExamples:\n")
            .unwrap_or_else(|| panic!("{help}"));
        assert!(examples.1.contains(&format!("\n    {example}")), "{help}");
        assert!(!help.contains("(also -"), "{help}");
    }
}

/// `help run` is the help of `run`, and `man run` its manual page.
#[test]
fn help_and_man_know_commands() {
    assert_eq!(ropewalk(&["help", "run"]), ropewalk(&["run", "--help"]));
    for (name, page) in [("run", "ropewalk-run"), ("bench-reduce", "ropewalk-bench-reduce")] {
        let printed = ropewalk(&["man", name]);
        assert!(printed.contains(&format!(".TH {page} ")), "{printed}");
        assert_eq!(printed, ropewalk(&["man", page]));
    }
}

/// There is a script for each shell that is named.
#[test]
fn every_shell_has_a_script() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = ropewalk(&["completions", shell]);
        assert!(script.contains("on-failure"), "{shell}");
    }
}

/// Help is read on terminals of 80 columns. Clap breaks all lines but that of the usage.
#[test]
fn help_has_lines_of_80_columns() {
    let commands = [
        "bench reduce",
        "bench rpc",
        "bench",
        "checkpoints",
        "completions",
        "demo",
        "info",
        "man",
        "nameserver",
        "plan",
        "reduce",
        "rehearse",
        "run",
        "sim launch",
        "sim reduce",
        "sim",
    ];
    for command in commands {
        for help in ["-h", "--help"] {
            let words: Vec<_> = command.split(' ').chain([help]).collect();
            let text = ropewalk(&words);
            let is_long = |line: &&str| line.chars().count() > 80 && !line.starts_with("Usage: ");
            let long: Vec<_> = text.lines().filter(is_long).collect();
            assert!(long.is_empty(), "{command}: {long:?}");
        }
    }
}

/// Each command has a page that groff sets without a warning; that of `run` has its options and its exit codes.
#[test]
fn manual_pages_are_whole() {
    let folder = tempfile::tempdir().unwrap();
    let said = ropewalk(&["man", folder.path().to_str().unwrap()]);
    assert!(said.contains(folder.path().to_str().unwrap()), "{said}");
    let mut pages = Vec::new();
    for entry in fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        let groff = Command::new("groff")
            .args(["-man", "-ww", "-Tascii", "-P-cbou"])
            .arg(&path)
            .output()
            .unwrap_or_else(|error| panic!("cannot run groff of the Debian package groff-base: {error}"));
        let stderr = String::from_utf8_lossy(&groff.stderr);
        assert!(
            groff.status.success() && stderr.is_empty(),
            "{}: {stderr}",
            path.display()
        );
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = String::from_utf8_lossy(&groff.stdout);
        let words: Vec<_> = text.split_whitespace().collect();
        pages.push((name, words.join(" ")));
    }
    let page = |name: &str| {
        pages
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, text)| text)
    };
    for name in ["ropewalk.1", "ropewalk-reduce.1", "ropewalk-plan.1"] {
        assert!(page(name).is_some_and(|text| text.contains("NAME")), "{name}");
    }
    assert!(
        page("ropewalk-agent.1").is_none(),
        "it is nobody's to start by hand"
    );
    let run = page("ropewalk-run.1").unwrap();
    let sections = ["EXAMPLES", "EXIT STATUS", "ENVIRONMENT", "FILES", "SEE ALSO"];
    for part in ["on-failure", "launcher-exec", "HYDRA_HOST_FILE"]
        .iter()
        .chain(&sections)
    {
        assert!(run.contains(part), "{part} in {run}");
    }
    for (name, text) in &pages {
        assert!(
            text.contains("EXAMPLES") && text.contains("EXIT STATUS") && text.contains("SEE ALSO"),
            "{name}: {text}"
        );
    }
    for name in ["ropewalk-reduce.1", "ropewalk-bench-reduce.1"] {
        let text = page(name).unwrap();
        assert!(
            text.contains("HYDRA_HOST_FILE") && text.contains("ROPEWALK_TRANSPORTS"),
            "{name}: {text}"
        );
        assert!(!text.contains("HYDRA_BINDING"), "{name}: {text}");
    }
    // Whoever is named has a page here, or is another program.
    for (name, text) in &pages {
        let (_, also) = text.rsplit_once("SEE ALSO").unwrap();
        let named = also
            .split(", ")
            .map(|page| page.split('(').next().unwrap().trim());
        for named in named.filter(|named| named.starts_with("ropewalk")) {
            assert!(page(&format!("{named}.1")).is_some(), "{named} in {name}");
        }
    }
    assert!(ropewalk(&["man"]).contains(".TH ropewalk 1"));
}
