//! The demo's application: models, migrates and draws a seismic survey.
//!
//! `ropewalk demo` starts it. It is an executable of its own so that the one that starts jobs carries no seismic code.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, anyhow};
use clap::{Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use psdm::{
    ConstantVelocity, ImportOptions, Imported, Migrated, Positions, Section, Segy, SurveyOptions, SurveySize,
    VelocityModel, WorkerOptions,
};
use ropewalk_reduce::Receipt;
use serde::Serialize;

/// Kirchhoff pre-stack depth migration of a survey, reduced by ropewalk.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Model a survey and write it as SEG-Y files; prints its folder.
    Model {
        /// The folder in which surveys are kept.
        #[arg(long, default_value = "target/psdm")]
        cache: PathBuf,
        /// Varies the model.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// How much there is to do.
        #[arg(long, value_enum, default_value = "demo")]
        size: SurveySize,
    },
    /// Make a survey of the traces in a SEG-Y file; prints its folder.
    Import(Import),
    /// Migrate this rank's share of the shots: run it with `ropewalk run -n N ropewalk-demo-worker worker ..`.
    Worker(Folders),
    /// Do what N workers do in one process, with the same result.
    Serial {
        #[command(flatten)]
        folders: Folders,
        /// How many workers to stand in for.
        #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
        parts: u16,
    },
    /// Draw a section again.
    Picture {
        /// The section, a SEG-Y file.
        section: PathBuf,
        /// The picture, a PNG file.
        picture: PathBuf,
    },
}

#[derive(clap::Args)]
struct Import {
    /// The traces: SEG-Y of revision 0 or 1 with samples of IBM or IEEE floats.
    traces: PathBuf,
    /// The survey's folder, a new one.
    #[arg(long)]
    out: PathBuf,
    #[command(flatten)]
    velocity: Velocity,
    /// The spacing of the image in metres; that of a velocity file is its own.
    #[arg(long, default_value_t = 10.0, conflicts_with = "velocity")]
    spacing: f32,
    /// The depth of the image in metres; by default as deep as the last sample sees.
    #[arg(long, conflicts_with = "velocity")]
    depth: Option<f32>,
    /// The largest distance of a position from the line in metres; by default the spacing of the image.
    #[arg(long)]
    tolerance: Option<f64>,
    /// Where positions are in the trace headers.
    #[arg(long, value_enum, default_value = "auto")]
    positions: Positions,
    /// The number of offset classes of the image.
    #[arg(long, default_value_t = 16)]
    offset_classes: usize,
    /// The largest offset that is migrated in metres; by default the largest that there is.
    #[arg(long)]
    offset_max: Option<f32>,
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct Velocity {
    /// The velocity model, a SEG-Y file of columns in m/s whose sample interval is their distance in millimetres.
    #[arg(long)]
    velocity: Option<PathBuf>,
    /// One velocity for the whole image in m/s.
    #[arg(long)]
    constant_velocity: Option<f32>,
}

#[derive(clap::Args)]
struct Folders {
    /// The survey's folder.
    #[arg(long)]
    survey: PathBuf,
    /// The folder for gathers.npy, section.sgy and image.png.
    #[arg(long)]
    out: PathBuf,
}

fn main() -> ExitCode {
    match perform(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ropewalk-demo-worker: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn perform(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Model { cache, seed, size } => {
            let survey = psdm::prepare_survey(&SurveyOptions { seed, size }, &cache, bar("modelling"))?;
            println!("{}", survey.folder().display());
        }
        Command::Import(import) => {
            let imported = import.perform()?;
            eprintln!("{}", describe(&imported));
            println!("{}", imported.survey.folder().display());
        }
        Command::Worker(folders) => {
            if let Some(migrated) = psdm::run_worker(&folders.options())? {
                finish(&folders, &migrated)?;
            }
        }
        Command::Serial { folders, parts } => {
            let migrated = psdm::run_serial(&folders.options(), parts.into(), bar("migrating"))?;
            finish(&folders, &migrated)?;
        }
        Command::Picture { section, picture } => {
            let bytes =
                fs::read(&section).with_context(|| format!("{} cannot be read", section.display()))?;
            let segy =
                Segy::parse(&bytes).with_context(|| format!("{} is no SEG-Y file", section.display()))?;
            let section = Section::from_segy(&segy)
                .map_err(|reason| anyhow!("{} is no section: {reason}", section.display()))?;
            draw(&section, &picture)?;
        }
    }
    Ok(())
}

impl Import {
    fn perform(self) -> anyhow::Result<Imported> {
        let velocity = match (self.velocity.velocity, self.velocity.constant_velocity) {
            (Some(path), _) => VelocityModel::File(path),
            (None, velocity_m_s) => VelocityModel::Constant(ConstantVelocity {
                velocity_m_s: velocity_m_s.expect("clap demands one of the two options"),
                spacing_m: self.spacing,
                depth_m: self.depth,
            }),
        };
        let options = ImportOptions {
            positions: self.positions,
            tolerance_m: self.tolerance,
            offset_classes: self.offset_classes,
            offset_max_m: self.offset_max,
        };
        let progress = bar("importing");
        Ok(psdm::import_survey(
            &self.traces,
            &self.out,
            velocity,
            &options,
            progress,
        )?)
    }
}

/// The decisions of an import, for the user to check.
fn describe(Imported { survey, plan }: &Imported) -> String {
    let (line, grid) = (plan.line(), plan.velocity().grid);
    format!(
        "{} traces in {} shots; {} dead or auxiliary traces left out\n\
         the line: x = 0 at ({:.2}, {:.2}) m, direction ({:.5}, {:.5}), positions at most {:.2} m beside it\n\
         the image: {:.0} m x {:.0} m, {} m spacing, {} offset classes to {:.0} m",
        plan.traces(),
        survey.shots(),
        plan.left_out(),
        line.start_m[0],
        line.start_m[1],
        line.direction[0],
        line.direction[1],
        plan.distance_max_m(),
        grid.width_m(),
        grid.depth_m(),
        grid.spacing_m,
        plan.migration_options().offset_classes,
        plan.migration_options().offset_max_m,
    )
}

impl Folders {
    fn options(&self) -> WorkerOptions {
        WorkerOptions {
            survey_dir: self.survey.clone(),
            out_dir: self.out.clone(),
        }
    }
}

/// The result, as a line of JSON on the standard output.
#[derive(Serialize)]
struct Summary<'a> {
    digest: String,
    receipt: Option<&'a Receipt>,
}

/// Draws the result, and prints its summary.
fn finish(folders: &Folders, migrated: &Migrated) -> anyhow::Result<()> {
    draw(&migrated.stack, &folders.out.join("image.png"))?;
    let summary = Summary {
        digest: migrated.digest.to_string(),
        receipt: migrated.receipt.as_ref(),
    };
    println!("{}", serde_json::to_string(&summary)?);
    Ok(())
}

fn draw(section: &Section, picture: &Path) -> anyhow::Result<()> {
    psdm::write_picture(section, picture).with_context(|| format!("{} cannot be written", picture.display()))
}

/// A progress bar on the terminal; nothing where there is none.
fn bar(name: &'static str) -> impl FnMut(usize, usize) {
    let style = ProgressStyle::with_template("{msg:>10} {wide_bar} {pos}/{len}");
    let bar = ProgressBar::new(0)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        .with_message(name);
    move |done, total| {
        bar.set_length(total as u64);
        bar.set_position(done as u64);
        if done == total {
            bar.finish_and_clear();
        }
    }
}
