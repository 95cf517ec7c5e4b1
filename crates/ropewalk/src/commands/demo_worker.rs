//! One rank of the demo.

use std::{path::PathBuf, process::ExitCode};

use psdm::{WorkerOptions, run_worker, write_picture};
use ropewalk::reduce::Receipt;
use serde::{Deserialize, Serialize};

use ropewalk_bench::output::print;

/// What a rank of the demo is told.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[arg(long, value_name = "DIR")]
    survey: PathBuf,
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// What rank 0 says of the result, as one line of JSON on its standard output.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Summary {
    pub(crate) digest: String,
    pub(crate) receipt: Option<Receipt>,
}

/// The name of the picture in the folder of the result.
pub(crate) const PICTURE: &str = "image.png";

/// Migrates this rank's shots; rank 0 writes the result and the picture.
pub(crate) fn run(arguments: Arguments) -> ExitCode {
    match work(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ropewalk demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn work(arguments: Arguments) -> anyhow::Result<()> {
    let options = WorkerOptions {
        survey_dir: arguments.survey,
        out_dir: arguments.out,
    };
    if let Some(migrated) = run_worker(&options)? {
        write_picture(&migrated.stack, &options.out_dir.join(PICTURE))?;
        let summary = Summary {
            digest: migrated.digest.to_string(),
            receipt: migrated.receipt,
        };
        print(serde_json::to_string(&summary)?)?;
    }
    Ok(())
}
