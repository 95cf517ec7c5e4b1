//! `ropewalk demo`: a seismic image that comes out right although a worker is killed in the middle.

mod application;
mod report;
mod timeline;
mod watched_run;

use std::{
    path::{PathBuf, absolute},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use comfy_table::{Table, presets::UTF8_FULL_CONDENSED};
use indicatif::{ProgressBar, ProgressStyle};
use ropewalk_bench::output::print;
use ropewalk_output_file::OutputFile;

use self::{
    application::Application,
    report::{Report, to_page},
    watched_run::{WatchedRun, watch},
};

/// The arguments of `ropewalk demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Varies the survey.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many worker processes.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=64))]
    workers: u32,
    /// How many of them are killed with SIGKILL in the reduction: those whose calls return first.
    #[arg(long, value_name = "N", default_value_t = 1)]
    kill: u32,
    /// How large a survey: `demo` has 42 shots over 5.1 km and gathers of 16 MiB, `small` is for tests.
    #[arg(long, value_parser = ["demo", "small"], default_value = "demo")]
    size: String,
    /// Where the results go, and the survey for the next time.
    ///
    /// [default: ./ropewalk-demo, or target/demo under `cargo run`]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Runs the demo. It fails unless the image is bitwise that of a serial run.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match show(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ropewalk demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn show(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments {
        seed,
        workers,
        kill,
        size,
        out,
    } = arguments;
    ensure!(
        kill < workers,
        "--kill {kill} of {workers} workers: rank 0, which gets the result, has to live"
    );
    let application = Application::find()?;
    let default = || match application::cargo() {
        Some(_) => "target/demo".into(),
        None => "ropewalk-demo".into(),
    };
    let out = &out.clone().unwrap_or_else(default);
    std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    print(format_args!("The results go to {}.", absolute(out)?.display()))?;
    print("Preparing the survey of synthetic seismic data.")?;
    let survey = application.model(*seed, size, &out.join("survey"))?;

    print(format_args!("Migrating it on {workers} workers, nobody killed."))?;
    let calm = watch(&application, &survey, &out.join("undisturbed"), *workers, 0)?;
    print(format_args!(
        "Migrating it again; workers that are killed when their calls have returned: {kill}."
    ))?;
    let killed_out = out.join("killed");
    let killed = watch(&application, &survey, &killed_out, *workers, *kill)?;
    print("Migrating it in one process, for comparison.")?;
    let start = Instant::now();
    let serial = application.migrate(&survey, &out.join("serial"), *workers)?;
    let serial_time = start.elapsed();

    let image = out.join(PICTURE);
    std::fs::copy(killed_out.join(PICTURE), &image).context("cannot copy the picture")?;
    let report = Report {
        seed: *seed,
        workers: *workers,
        calm: &calm,
        killed: &killed,
        serial_digest: &serial.digest,
        serial_time,
        picture: PICTURE,
    };
    let page = out.join("report.html");
    OutputFile::prepare(&page)?.write(to_page(&report))?;
    print(table(&report))?;
    print(format_args!(
        "image:  {}\nreport: {}",
        image.display(),
        page.display()
    ))?;
    if killed.summary.digest != serial.digest || calm.summary.digest != serial.digest {
        bail!("the images differ: this is a defect of ropewalk, please report it with --seed {seed}");
    }
    Ok(())
}

fn table(report: &Report<'_>) -> Table {
    let Report {
        calm,
        killed,
        serial_digest,
        serial_time,
        ..
    } = report;
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_header(["", "nobody killed", "with the kill", "serial"]);
    let deaths: Vec<String> = killed.deaths.iter().map(|death| death.to_string()).collect();
    let deaths = if deaths.is_empty() {
        "nobody".to_owned()
    } else {
        deaths.join("\n")
    };
    table.add_row(["killed", "nobody", &deaths, ""]);
    table.add_row(["plans made", &calm.plans(), &killed.plans(), ""]);
    let reduction = |run: &WatchedRun| run.reduction().map_or("?".to_owned(), seconds);
    table.add_row([
        "reduction, from the last call",
        &reduction(calm),
        &reduction(killed),
        "",
    ]);
    table.add_row([
        "whole job",
        &seconds(calm.elapsed),
        &seconds(killed.elapsed),
        &seconds(*serial_time),
    ]);
    let digests: [&str; 3] = [&calm.summary.digest, &killed.summary.digest, serial_digest];
    let [calm_digest, killed_digest, serial_digest] = digests.map(shortened);
    table.add_row(["blake3 of the image", calm_digest, killed_digest, serial_digest]);
    let verdict = |digest: &str| {
        if digest == report.serial_digest {
            "equal to the serial one"
        } else {
            "DIFFERENT"
        }
    };
    table.add_row([
        "",
        verdict(&calm.summary.digest),
        verdict(&killed.summary.digest),
        "",
    ]);
    table
}

fn bar(name: &'static str, length: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:>10} {wide_bar} {pos}/{len}");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length).with_style(style).with_message(name)
}

fn seconds(duration: Duration) -> String {
    format!("{:.3} s", duration.as_secs_f64())
}

fn shortened(digest: &str) -> &str {
    digest.get(..16).unwrap_or(digest)
}

/// The name of the picture in each folder of results.
const PICTURE: &str = "image.png";
