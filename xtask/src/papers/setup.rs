//! The means by which tables and figures are made.

use std::{
    cell::OnceCell,
    path::{Path, PathBuf},
};

use ropewalk_openfoam_trials::{PaperCase, measure};

use super::{Extent, Options, executables::Executables};
use crate::{
    debian,
    openfoam::{self, Build},
};

/// The means to make them.
pub(super) struct Setup {
    pub(super) extent: Extent,
    pub(super) executables: Executables,
    built: Option<PathBuf>,
    function_object: OnceCell<PathBuf>,
    /// The cases of OpenFOAM, measured once for all tables and figures.
    cases: OnceCell<Vec<PaperCase>>,
}

impl Setup {
    pub(super) fn new(options: &Options) -> Self {
        let extent = match options.quick {
            true => Extent::Quick,
            false => Extent::Full,
        };
        Self {
            extent,
            executables: Executables::new(extent, options.built.as_ref()),
            built: options.built.clone(),
            function_object: OnceCell::new(),
            cases: OnceCell::new(),
        }
    }

    /// The executable.
    pub(super) fn ropewalk(&self) -> anyhow::Result<PathBuf> {
        Ok(self.executables.folder()?.join("ropewalk"))
    }

    /// The function object of OpenFOAM.
    pub(super) fn function_object(&self) -> anyhow::Result<&Path> {
        if let Some(library) = self.function_object.get() {
            return Ok(library);
        }
        let there = self
            .built
            .as_ref()
            .map(|built| built.join(ropewalk_openfoam::LIBRARY));
        let library = match (there.filter(|library| library.exists()), self.extent) {
            (Some(library), _) => library.canonicalize()?,
            (None, Extent::Full) => openfoam::build(Build::Release)?,
            (None, Extent::Quick) => openfoam::build(Build::Dev)?,
        };
        Ok(self.function_object.get_or_init(|| library))
    }

    pub(super) fn cases(&self) -> anyhow::Result<&[PaperCase]> {
        if let Some(cases) = self.cases.get() {
            return Ok(cases);
        }
        let library = self.function_object()?;
        debian::provide_examples()?;
        let cases = measure(library, self.extent == Extent::Quick)?;
        Ok(self.cases.get_or_init(|| cases))
    }
}
