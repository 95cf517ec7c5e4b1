//! The tables and figures of the papers that the systems come from: one command makes each, and writes it into its
//! page in `docs/papers`.

mod chart;
mod checkpoints;
mod executables;
mod master_load;
mod model;
mod page;
mod points;
mod process_management;
mod recovery;
mod reduction;
mod rehearsals;
mod rpc;
mod setup;
mod soak;

use std::{fs, path::PathBuf};

use anyhow::{Context, bail};

use crate::project;
use setup::Setup;

/// The choice of tables and figures.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only this one, such as 003-figure6, or all of a paper, such as 003
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Few points, in less than a minute; tables and pictures go to target/papers, and pages stay as they are
    #[arg(long)]
    quick: bool,
    /// The folder of the executables and libraries, if they are not to be built
    #[arg(long, value_name = "DIR")]
    built: Option<PathBuf>,
}

impl Options {
    /// Everything, with few points.
    pub(crate) fn quick() -> Self {
        Self {
            only: None,
            quick: true,
            built: None,
        }
    }
}

/// A table or figure.
struct Entry {
    /// The number of the paper, and that of its table or figure.
    name: &'static str,
    /// The page in `docs/papers` that shows it.
    page: &'static str,
    source: Source,
    /// It has a picture of its name beside its page.
    has_picture: bool,
    make: fn(&Setup) -> anyhow::Result<Made>,
}

/// The origin of its numbers.
#[derive(Clone, Copy, PartialEq)]
enum Source {
    /// The simulator, where the machines that decide are those of real jobs.
    Simulated,
    /// The simulator, beside counts of real processes.
    SimulatedAndCounted,
    /// The simulator, beside measurements of real processes on this machine.
    SimulatedAndMeasured,
    /// Real processes on this machine.
    Measured,
    /// Real processes on this machine, and the simulator beyond.
    MeasuredAndSimulated,
    /// Runs in virtual time, with failures at random and the measured times of real programs.
    Rehearsed,
    /// The same, beside real programs.
    RehearsedAndMeasured,
    /// Formulas.
    Computed,
}

impl Source {
    fn text(self) -> &'static str {
        match self {
            Self::Simulated => "Simulated.",
            Self::SimulatedAndCounted => "Simulated, beside counts of real processes.",
            Self::SimulatedAndMeasured => "Simulated, beside measurements of real processes.",
            Self::Measured => "Measured.",
            Self::MeasuredAndSimulated => "Measured; the larger jobs are simulated.",
            Self::Rehearsed => "Rehearsed in virtual time with measured times.",
            Self::RehearsedAndMeasured => "Rehearsed in virtual time with measured times, and measured.",
            Self::Computed => "Computed.",
        }
    }
}

/// How many points are made.
#[derive(Clone, Copy, PartialEq)]
enum Extent {
    Full,
    Quick,
}

/// A table or figure as it is written.
struct Made {
    /// Markdown.
    text: String,
    /// A picture as SVG.
    picture: Option<String>,
}

/// All of them, in the order of the pages.
const ENTRIES: &[Entry] = &[
    Entry {
        name: "001-figure2",
        page: "process-management.md",
        source: Source::MeasuredAndSimulated,
        has_picture: true,
        make: |setup| process_management::figure2(setup.extent, &setup.executables),
    },
    Entry {
        name: "001-figure3",
        page: "process-management.md",
        source: Source::Measured,
        has_picture: true,
        make: |setup| process_management::figure3(setup.extent, &setup.executables),
    },
    Entry {
        name: "001-figure4",
        page: "process-management.md",
        source: Source::Measured,
        has_picture: true,
        make: |setup| process_management::figure4(setup.extent, &setup.executables),
    },
    Entry {
        name: "001-figure5",
        page: "process-management.md",
        source: Source::Measured,
        has_picture: true,
        make: |setup| process_management::figure5(setup.extent, &setup.executables),
    },
    Entry {
        name: "002-table2",
        page: "checkpoints.md",
        source: Source::Measured,
        has_picture: false,
        make: checkpoints::table2,
    },
    Entry {
        name: "002-intervals",
        page: "checkpoints.md",
        source: Source::Computed,
        has_picture: false,
        make: checkpoints::intervals,
    },
    Entry {
        name: "002-figure5",
        page: "checkpoints.md",
        source: Source::Measured,
        has_picture: true,
        make: checkpoints::figure5,
    },
    Entry {
        name: "002-figure6",
        page: "checkpoints.md",
        source: Source::RehearsedAndMeasured,
        has_picture: true,
        make: checkpoints::figure6,
    },
    Entry {
        name: "002-figure7",
        page: "checkpoints.md",
        source: Source::Rehearsed,
        has_picture: true,
        make: checkpoints::figure7,
    },
    Entry {
        name: "003-figure6",
        page: "reduction.md",
        source: Source::Simulated,
        has_picture: true,
        make: |setup| reduction::figure6(setup.extent),
    },
    Entry {
        name: "003-figure7",
        page: "reduction.md",
        source: Source::Simulated,
        has_picture: true,
        make: |setup| reduction::figure7(setup.extent),
    },
    Entry {
        name: "003-plans",
        page: "reduction.md",
        source: Source::Simulated,
        has_picture: false,
        make: |setup| reduction::plans(setup.extent),
    },
    Entry {
        name: "003-figure8",
        page: "reduction.md",
        source: Source::Simulated,
        has_picture: true,
        make: |setup| reduction::figure8(setup.extent),
    },
    Entry {
        name: "003-figure9",
        page: "reduction.md",
        source: Source::Simulated,
        has_picture: true,
        make: |setup| reduction::figure9(setup.extent),
    },
    Entry {
        name: "003-table1",
        page: "reduction.md",
        source: Source::SimulatedAndMeasured,
        has_picture: false,
        make: model::table1,
    },
    Entry {
        name: "003-table2",
        page: "reduction.md",
        source: Source::SimulatedAndCounted,
        has_picture: false,
        make: |setup| recovery::table2(setup.extent),
    },
    Entry {
        name: "003-table2-others",
        page: "reduction.md",
        source: Source::Simulated,
        has_picture: false,
        make: |setup| recovery::table2_of_others(setup.extent),
    },
    Entry {
        name: "003-formulas",
        page: "reduction.md",
        source: Source::Simulated,
        has_picture: false,
        make: |setup| model::formulas(setup.extent),
    },
    Entry {
        name: "003-formula5",
        page: "reduction.md",
        source: Source::Simulated,
        has_picture: false,
        make: |setup| recovery::formula5(setup.extent),
    },
    Entry {
        name: "003-soak",
        page: "reduction.md",
        source: Source::Measured,
        has_picture: false,
        make: soak::soak,
    },
    Entry {
        name: "004-table1",
        page: "rpc.md",
        source: Source::Measured,
        has_picture: false,
        make: |setup| rpc::table1(setup.extent, &setup.executables),
    },
    Entry {
        name: "004-figure4",
        page: "rpc.md",
        source: Source::Measured,
        has_picture: true,
        make: |setup| rpc::figure4(setup.extent, &setup.executables),
    },
    Entry {
        name: "004-figure5",
        page: "rpc.md",
        source: Source::Measured,
        has_picture: true,
        make: |setup| rpc::figure5(setup.extent, &setup.executables),
    },
    Entry {
        name: "004-encoding",
        page: "rpc.md",
        source: Source::Measured,
        has_picture: false,
        make: |setup| rpc::encoding(setup.extent, &setup.executables),
    },
];

/// The folder of the pages.
const PAGES: &str = "docs/papers";

/// Makes tables and figures, and writes them into their pages.
///
/// # Errors
/// If there is none of that name, one cannot be made, or its page has no place for it.
pub(crate) fn papers(options: &Options) -> anyhow::Result<()> {
    let is_chosen = |entry: &&Entry| {
        options.only.as_ref().is_none_or(|only| {
            let rest = entry.name.strip_prefix(only.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        })
    };
    let chosen: Vec<_> = ENTRIES.iter().filter(is_chosen).collect();
    if chosen.is_empty() {
        let names: Vec<_> = ENTRIES.iter().map(|entry| entry.name).collect();
        bail!("there is no such table or figure: there are {}", names.join(", "));
    }
    let setup = Setup::new(options);
    for entry in chosen {
        eprintln!("==> {}", entry.name);
        let made = (entry.make)(&setup).with_context(|| entry.name)?;
        write(entry, &made, setup.extent)?;
    }
    Ok(())
}

fn write(entry: &Entry, made: &Made, extent: Extent) -> anyhow::Result<()> {
    let folder = folder(extent)?;
    fs::create_dir_all(&folder)?;
    if let Some(picture) = &made.picture {
        fs::write(folder.join(format!("{}.svg", entry.name)), picture)?;
    }
    let section = page::section(entry, &made.text);
    match extent {
        Extent::Quick => fs::write(folder.join(format!("{}.md", entry.name)), section)?,
        Extent::Full => {
            let path = folder.join(entry.page);
            let text =
                fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            fs::write(&path, page::replaced(&text, entry, &section)?)?;
        }
    }
    Ok(())
}

fn folder(extent: Extent) -> anyhow::Result<PathBuf> {
    Ok(match extent {
        Extent::Quick => project::target()?.join("papers"),
        Extent::Full => project::root().join(PAGES),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Each table and figure of the list stands in its page, with its picture; and no page has one that is not in the
    /// list.
    #[test]
    fn pages_show_what_is_listed() {
        let folder = project::root().join(PAGES);
        let files = fs::read_dir(&folder).unwrap();
        let files: BTreeSet<String> = files
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        let mut listed = BTreeSet::new();
        for entry in ENTRIES {
            listed.insert(entry.page.to_owned());
            let text = fs::read_to_string(folder.join(entry.page)).unwrap();
            let shown = page::shown(&text, entry).unwrap();
            assert!(shown.contains("\n|---|"), "{} has no table", entry.name);
            let picture = format!("{}.svg", entry.name);
            assert_eq!(
                shown.contains(&format!("]({picture})")),
                entry.has_picture,
                "{picture}"
            );
            if entry.has_picture {
                listed.insert(picture);
            }
        }
        assert_eq!(files, listed);
        for page in files.iter().filter(|file| file.ends_with(".md")) {
            let text = fs::read_to_string(folder.join(page)).unwrap();
            let in_list = ENTRIES.iter().filter(|entry| entry.page == page);
            let in_list: Vec<_> = in_list.map(|entry| entry.name).collect();
            assert_eq!(page::names(&text), in_list, "{page}");
        }
    }
}
