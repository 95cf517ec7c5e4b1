use std::{collections::HashSet, ffi::OsString, path::Path};

use ropewalk_fabric::JobKey;
use ropewalk_launch::CountedParts;

use super::{
    super::{Surroundings, help::*, parse},
    *,
};

/// The error of a command, if it has one. Every file has a line with a program, or a host.
fn error(words: &[&str]) -> Option<String> {
    let around = Surroundings {
        agent: "agent".into(),
        variable: &|_| None,
        // This machine may have a file of options.
        read: &|path: &Path| match path.starts_with("/etc") {
            true => Err(std::io::ErrorKind::NotFound.into()),
            false => Ok(b"a:1\n".to_vec()),
        },
        count_parts: &|part| Ok(CountedParts { part, count: 2 }),
        read_key: &|_| Ok(JobKey::from_bytes([1; 32])),
    };
    let words = words.iter().map(OsString::from).collect();
    parse(words, &around).err().map(|error| format!("{error:#}"))
}

/// Each spelling of each option is read, with one dash and with two, and takes a value if it is said to.
#[test]
fn each_spelling_is_read() {
    let partners =
        "--hosts a,b --checkpoint d --nameserver ::1 --nameserver-key k --on-failure restart --partner";
    let partners: Vec<_> = partners
        .replace("::1", "127.0.0.1")
        .split(' ')
        .map(str::to_owned)
        .collect();
    for row in rows().filter(|row| row.is_option()) {
        let value = match (row.value(), row.choices().first()) {
            (None, _) => "",
            (_, Some(choice)) => choice,
            (Some("NAME=VALUE"), _) => "A=b",
            (Some("PORT IFACE KEY PID"), _) => "1 x y 1",
            (Some("NAME VALUE"), _) => "a b",
            (Some("ADDRESS|NAME" | "NAME" | "HOST[:PORT]"), _) => "127.0.0.1",
            (Some("H1[:N],H2.."), _) => "a,b",
            _ => "1",
        };
        for name in row.names() {
            let bare = name.trim_start_matches('-');
            // Copies on other hosts do not go with these.
            let is_alone = ["adapter", "rankmap", "upload"].contains(&bare);
            let before = &partners[..partners.len() - usize::from(is_alone)];
            for dashes in ["-", "--"] {
                let option = format!("{dashes}{bare}");
                let mut words: Vec<_> = before.iter().map(String::as_str).collect();
                words.push(&option);
                words.extend(value.split_terminator(' '));
                words.push("prog");
                let found = error(&words);
                match bare {
                    "hybrid-hosts" => assert!(found.unwrap().contains("same path")),
                    _ => assert_eq!(found, None, "{words:?}"),
                }
                if row.value().is_some() {
                    assert!(
                        error(&[&option]).unwrap().contains(name),
                        "{option} without a value"
                    );
                }
            }
        }
    }
}

/// Help, manual page and completions have each spelling and each variable; no name stands for two things.
#[test]
fn each_row_is_shown() {
    let mut known = HashSet::new();
    let mut command = documented(clap::Command::new("run").disable_help_flag(true));
    let page = crate::man::page(command.clone().display_name("ropewalk-run")).unwrap();
    // Without the fonts.
    let page = String::from_utf8(page).unwrap();
    let page = page.replace("\\fB", " ").replace("\\fR", " ").replace('\\', "");
    let mut script = Vec::new();
    clap_complete::generate(clap_complete::Shell::Bash, &mut command, "run", &mut script);
    let script = String::from_utf8(script).unwrap();
    let help = help();
    let has = |text: &str, name: &str| {
        let is_end = |letter: char| !letter.is_ascii_alphanumeric() && !"-_".contains(letter);
        text.split(is_end).any(|word| word == name)
    };
    for row in rows() {
        assert!(!row.help.trim().is_empty(), "{}", row.usage);
        for name in row.names() {
            let bare = name.trim_start_matches('-');
            assert!(known.insert(bare), "{name} stands here twice");
            assert!(has(&help, name), "{name} in {help}");
            let shown = match (row.is_option(), bare.len()) {
                (false, _) => bare.to_owned(),
                (true, 1) => format!("-{bare}"),
                (true, _) => format!("--{bare}"),
            };
            assert!(
                has(&page, &shown) || has(&page, &format!("-{bare}")),
                "{shown} in {page}"
            );
            assert!(!row.is_option() || has(&script, &shown), "{shown} in {script}");
        }
    }
    assert!(help.lines().all(|line| line.len() <= 80), "{help}");
}

/// Options that texts name are options.
#[test]
fn texts_name_options() {
    let help = help();
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
    let words = help.split(|letter| !is_name(letter));
    for name in words.filter_map(|word| word.strip_prefix("--")) {
        assert!(find(name).is_some(), "--{name}");
    }
}

/// Errors repeat an option as it was typed, and advise which one to use.
#[test]
fn errors_suggest_options() {
    for (word, text) in [
        ("-ppm", "there is no option -ppm; did you mean -ppn? `"),
        (
            "--on-failures=abort",
            "there is no option --on-failures; did you mean --on-failure? `",
        ),
        ("--ntasks=2", "there is no option --ntasks; use -n N;"),
        ("-xyzzy", "there is no option -xyzzy; `ropewalk run --help`"),
    ] {
        let found = error(&[word, "2", "prog"]).unwrap();
        assert!(found.starts_with(text), "{found}");
    }
}
