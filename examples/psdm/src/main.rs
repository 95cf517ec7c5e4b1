//! The mini-application's command line.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use psdm::{Migrated, SurveyOptions, SurveySize, WorkerOptions};

/// Kirchhoff pre-stack depth migration of a synthetic survey, reduced by ropewalk.
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
    /// Migrate this rank's share of the shots: run it with `ropewalk run -n N psdm worker ..`.
    Worker(Folders),
    /// Do what N workers do in one process, with the same result.
    Serial {
        #[command(flatten)]
        folders: Folders,
        /// How many workers to stand in for.
        #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
        parts: u16,
    },
}

#[derive(clap::Args)]
struct Folders {
    /// The survey's folder.
    #[arg(long)]
    survey: PathBuf,
    /// The folder for gathers.npy, section.npy and image.png.
    #[arg(long)]
    out: PathBuf,
}

fn main() -> Result<()> {
    match Arguments::parse().command {
        Command::Model { cache, seed, size } => {
            let survey = psdm::prepare_survey(&SurveyOptions { seed, size }, &cache, |done, total| {
                eprint!("\r{done} of {total} shots modelled");
            });
            eprintln!();
            println!("{}", survey?.folder().display());
        }
        Command::Worker(folders) => {
            if let Some(migrated) = psdm::run_worker(&folders.options())? {
                finish(&folders, &migrated)?;
            }
        }
        Command::Serial { folders, parts } => {
            let migrated = psdm::run_serial(&folders.options(), parts.into(), |done, total| {
                eprint!("\r{done} of {total} shots migrated");
            });
            eprintln!();
            finish(&folders, &migrated?)?;
        }
    }
    Ok(())
}

impl Folders {
    fn options(&self) -> WorkerOptions {
        WorkerOptions {
            survey: self.survey.clone(),
            out: self.out.clone(),
        }
    }
}

fn finish(folders: &Folders, migrated: &Migrated) -> Result<()> {
    let image = folders.out.join("image.png");
    psdm::write_picture(&migrated.stack, &image)
        .with_context(|| format!("{} cannot be written", image.display()))?;
    println!("{}  {}", migrated.digest, migrated.gathers.display());
    Ok(())
}
