//! `ropewalk checkpoints`: a look at what is saved, beside a job or without one.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, SystemTime},
};

use comfy_table::{CellAlignment, ContentArrangement, Table, presets::UTF8_FULL_CONDENSED};
use ropewalk_checkpoint::{State, Survey, SurveyError, Surveyed, survey};
use serde_json::{Value, json};

/// Show which checkpoints a directory holds, and whether they are whole
///
/// Reads and hashes all of them, and changes nothing: a job may save there meanwhile.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The directory of the checkpoints, or a case of OpenFOAM with a folder checkpoints
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Write one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let found = match survey_at(&arguments.directory) {
        Ok(found) => found,
        Err(error) => {
            let mut text = error.to_string();
            if let Some(source) = std::error::Error::source(&error) {
                text = format!("{text}: {source}");
            }
            let _ = writeln!(io::stderr(), "ropewalk checkpoints: {text}");
            return ExitCode::FAILURE;
        }
    };
    let now = SystemTime::now();
    let text = match arguments.json {
        true => format!("{:#}", to_json(&found, now)),
        false => to_text(&found, now),
    };
    // Without a reader nobody wants it.
    let _ = writeln!(io::stdout(), "{text}");
    ExitCode::SUCCESS
}

/// The checkpoints in a directory, or in the folder of a case of OpenFOAM where they are by default.
fn survey_at(directory: &Path) -> Result<Survey, SurveyError> {
    match survey(directory) {
        Err(SurveyError::Foreign(_)) if directory.join("system/controlDict").exists() => {
            survey(&directory.join("checkpoints"))
        }
        found => found,
    }
}

fn to_json(found: &Survey, now: SystemTime) -> Value {
    let generation = |one: &Surveyed| {
        let (state, reasons, elsewhere): (_, &[String], &[u32]) = match &one.state {
            State::Whole => ("whole", &[], &[]),
            State::WholeHere { elsewhere } => ("whole-here", &[], elsewhere),
            State::NotWhole(reasons) => ("not-whole", reasons, &[]),
        };
        json!({
            "generation": one.generation, "step": one.step, "ranks": one.ranks,
            "age_s": age(one, now).map(|age| age.as_secs_f64()), "bytes": one.bytes, "state": state,
            "reasons": reasons, "ranks_elsewhere": elsewhere, "folder": one.folder.display().to_string(),
        })
    };
    let generations: Vec<Value> = found.generations.iter().map(generation).collect();
    let quarantined = found.quarantined.iter();
    let quarantined: Vec<Value> = quarantined
        .map(|(generation, bytes)| json!({"generation": generation, "bytes": bytes}))
        .collect();
    json!({
        "directory": found.directory.display().to_string(), "of_one_host": found.is_of_one_host,
        "files_below": found.root.as_ref().map(|root| root.display().to_string()),
        "newest_whole": found.newest_whole().map(|one| one.generation),
        "generations": generations, "quarantined": quarantined,
    })
}

fn to_text(found: &Survey, now: SystemTime) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["generation", "step", "ranks", "age", "size", "state"]);
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    for one in &found.generations {
        table.add_row([
            one.generation.to_string(),
            or_dash(one.step.map(|step| step.to_string())),
            or_dash(one.ranks.map(|ranks| ranks.to_string())),
            or_dash(age(one, now).map(time)),
            size(one.bytes),
            state(&one.state),
        ]);
    }
    for column in 0..5 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut text = match found.generations.is_empty() {
        true => format!("{} holds no generation", found.directory.display()),
        false => table.to_string(),
    };
    if let Some(root) = &found.root {
        text.push_str(&format!("\ntheir files are below {}", root.display()));
    }
    if found.is_of_one_host {
        text.push_str("\nthis is one host's part; hosts with the others have such a directory too");
    }
    for (generation, bytes) in &found.quarantined {
        let folder = found.directory.join("quarantine");
        text.push_str(&format!(
            "\ngeneration {generation}, {}, was put aside in {}",
            size(*bytes),
            folder.display()
        ));
    }
    text
}

fn state(state: &State) -> String {
    match state {
        State::Whole => "whole".to_owned(),
        State::WholeHere { elsewhere } => {
            let ranks: Vec<String> = elsewhere
                .iter()
                .take(RANKS_SHOWN_MAX)
                .map(u32::to_string)
                .collect();
            let more = elsewhere.len() - ranks.len();
            let more = if more > 0 {
                format!(" and {more} more")
            } else {
                String::new()
            };
            format!("whole here; elsewhere: ranks {}{more}", ranks.join(", "))
        }
        State::NotWhole(reasons) => format!("not whole: {}", reasons.join("; ")),
    }
}

fn age(one: &Surveyed, now: SystemTime) -> Option<Duration> {
    // A clock may have been set back.
    one.saved
        .map(|saved| now.duration_since(saved).unwrap_or_default())
}

fn time(age: Duration) -> String {
    let seconds = age.as_secs_f64();
    match seconds {
        _ if seconds < 120.0 => format!("{seconds:.0} s"),
        _ if seconds < 7200.0 => format!("{:.0} min", seconds / 60.0),
        _ if seconds < 172_800.0 => format!("{:.1} h", seconds / 3600.0),
        _ => format!("{:.1} days", seconds / 86_400.0),
    }
}

fn size(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let (mut value, mut unit) = (bytes as f64, "B");
    for next in units {
        if value < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, next);
    }
    match unit {
        "B" => format!("{bytes} B"),
        unit => format!("{value:.1} {unit}"),
    }
}

const RANKS_SHOWN_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes and ages have units that people read.
    #[test]
    fn numbers_have_units() {
        assert_eq!([size(0), size(1023), size(1536)], ["0 B", "1023 B", "1.5 KiB"]);
        assert_eq!(size(3 << 30), "3.0 GiB");
        let age = |seconds| time(Duration::from_secs(seconds));
        assert_eq!(
            [age(5), age(600), age(9000), age(259_200)],
            ["5 s", "10 min", "2.5 h", "3.0 days"]
        );
    }
}
