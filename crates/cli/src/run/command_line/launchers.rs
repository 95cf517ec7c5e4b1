//! How agents are started on other hosts, as options and variables say it.

use std::{ffi::OsString, path::Path};

use anyhow::bail;
use ropewalk_launch::StartMethod;

use super::{Surroundings, given::alternatives, options::find, resources::ResourceManager};

/// The user's wishes.
#[derive(Default)]
pub(super) struct Launching {
    pub(super) launcher: Option<String>,
    /// The command that starts agents.
    pub(super) command: Option<String>,
    /// Options for it.
    pub(super) further: String,
    /// Windows of the programs come here (ssh's X11 forwarding), or not.
    pub(super) forwards_x: Option<bool>,
}

impl Launching {
    /// How agents are started on hosts of a batch system, or of none.
    pub(super) fn method(
        &self,
        manager: Option<ResourceManager>,
        around: &Surroundings<'_>,
    ) -> anyhow::Result<StartMethod> {
        let further = split(&self.further);
        if let Some(command) = &self.command {
            let words = split(command);
            if words.is_empty() {
                bail!("option -launcher-exec wants a command");
            }
            return Ok(StartMethod::Command([words, further].concat()));
        }
        let of_manager = manager.and_then(ResourceManager::launcher);
        Ok(match self.launcher.as_deref().or(of_manager) {
            None | Some("ssh") => {
                let x = self.forwards_x.map(|forwards| if forwards { "-X" } else { "-x" });
                StartMethod::Ssh(x.map(OsString::from).into_iter().chain(further).collect())
            }
            Some("slurm" | "srun") => StartMethod::Srun(further),
            Some("rsh") => StartMethod::Command([vec!["rsh".into()], further].concat()),
            Some("lsf") => {
                let program = in_folder(&["LSF_BINDIR"], "blaunch", around);
                StartMethod::Command([vec![program], further].concat())
            }
            Some("sge") => {
                let program = in_folder(&["SGE_ROOT", "ARC"], "qrsh", around);
                StartMethod::Command([vec![program, "-inherit".into(), "-V".into()], further].concat())
            }
            // All on this machine, whatever the hosts are called.
            Some("fork") => {
                let words = ["sh", "-c", "shift; exec \"$@\"", "sh"];
                StartMethod::Command(words.map(OsString::from).into())
            }
            Some(other @ ("ll" | "manual" | "persist")) => bail!(
                "-launcher {other} of Hydra's is not there; -launcher-exec CMD starts agents by any command that is \
                 used as CMD HOST COMMAND"
            ),
            Some(other) => {
                let known = find("launcher").map_or(Vec::new(), |(row, _)| row.choices());
                bail!("option -launcher wants {}, not {other:?}", alternatives(&known))
            }
        })
    }
}

fn split(text: &str) -> Vec<OsString> {
    text.split_ascii_whitespace().map(OsString::from).collect()
}

/// A command of a batch system where its variables say that it is, or else in `PATH`.
fn in_folder(variables: &[&str], command: &str, around: &Surroundings<'_>) -> OsString {
    let folders: Option<Vec<_>> = variables.iter().map(|name| (around.variable)(name)).collect();
    match folders.as_deref() {
        Some([folder]) => Path::new(folder).join(command).into(),
        Some([root, architecture]) => Path::new(root)
            .join("bin")
            .join(architecture)
            .join(command)
            .into(),
        _ => command.into(),
    }
}
