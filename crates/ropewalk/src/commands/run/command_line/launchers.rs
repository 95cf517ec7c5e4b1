//! How agents are started on other hosts, as options and variables say it.

use std::{ffi::OsString, path::Path};

use anyhow::bail;
use ropewalk::launch::StartMethod;

use super::{Surroundings, resources::ResourceManager};

/// The names of the ways there are.
pub(super) const NAMES: &str = "ssh rsh slurm lsf sge fork";

/// What the user says about it.
pub(super) struct Wanted<'a> {
    pub(super) launcher: Option<&'a str>,
    /// The command that starts agents.
    pub(super) command: Option<&'a str>,
    /// Options for it.
    pub(super) further: &'a str,
    /// Whether windows of the programs are to come here (ssh's X11 forwarding).
    pub(super) forwards_x: Option<bool>,
    /// Whose hosts they are.
    pub(super) manager: Option<ResourceManager>,
}

/// How agents are started.
pub(super) fn method(wanted: &Wanted<'_>, around: &Surroundings<'_>) -> anyhow::Result<StartMethod> {
    let further = split(wanted.further);
    if let Some(command) = wanted.command {
        let words = split(command);
        if words.is_empty() {
            bail!("option -launcher-exec wants a command");
        }
        return Ok(StartMethod::Command([words, further].concat()));
    }
    let of_manager = wanted.manager.and_then(ResourceManager::launcher);
    Ok(match wanted.launcher.or(of_manager) {
        None | Some("ssh") => {
            let x = wanted
                .forwards_x
                .map(|forwards| OsString::from(if forwards { "-X" } else { "-x" }));
            StartMethod::Ssh(x.into_iter().chain(further).collect())
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
        Some("fork") => StartMethod::Command(
            ["sh", "-c", "shift; exec \"$@\"", "sh"]
                .map(OsString::from)
                .into(),
        ),
        Some(other @ ("ll" | "manual" | "persist")) => bail!(
            "-launcher {other} of Hydra's is not there; -launcher-exec CMD starts agents by any command that is used as \
             CMD HOST COMMAND"
        ),
        Some(other) => {
            bail!(
                "option -launcher wants {}, not {other:?}",
                NAMES.replace(' ', ", ").replace(", fork", " or fork")
            )
        }
    })
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
