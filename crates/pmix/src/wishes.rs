//! Wishes of processes as the agent is asked for them: what they publish, and what they start.

use ropewalk_launch_core::{group_plan::ENVIRONMENT_KEY, pmix::Process};
use ropewalk_pmi as pmi;

use crate::{
    lookups::{Kept, KeptValue},
    sys::{
        types::{Status, data_type, status},
        upcalls::SpawnedApp,
        values::Item,
    },
};

/// `PMIX_PERSIST_FIRST_READ`.
const FIRST_READ: u64 = 1;
/// Keys of the standard begin with it: here, they are wishes about what is published.
const RESERVED: &str = "pmix.";

/// The pairs that a process publishes, as the root of the job keeps them.
///
/// # Errors
/// If a value is of a type that is not kept.
pub(crate) fn published(
    from: &Process,
    items: Vec<(String, Option<Item>)>,
) -> Result<Vec<(String, Vec<u8>)>, Status> {
    let is_taken_by_reader = items.iter().any(|(key, item)| {
        key == "pmix.persist"
            && matches!(item, Some(Item::Number { data_type: data_type::PERSIST, bits }) if bits & 0xff == FIRST_READ)
    });
    let values = items.into_iter().filter(|(key, _)| !key.starts_with(RESERVED));
    let pairs = values.map(|(key, item)| {
        let value = item.and_then(KeptValue::of).ok_or(status::NOT_SUPPORTED)?;
        let kept = Kept {
            owner: (from.namespace.clone(), from.rank.unwrap_or(0)),
            value,
            is_taken_by_reader,
        };
        let bytes = postcard::to_allocvec(&kept).map_err(|_| status::ERROR)?;
        Ok((key, bytes))
    });
    pairs.collect()
}

/// The programs that a process wants, as PMI asks for them.
pub(crate) fn spawn_of(apps: Vec<SpawnedApp>) -> pmi::Spawn {
    let command = |app: SpawnedApp| {
        let SpawnedApp {
            program,
            mut arguments,
            environment,
            directory,
            processes,
            options,
        } = app;
        // The first is the name of the program.
        let has_name = arguments.first().is_some_and(|first| *first == program);
        if has_name {
            arguments.remove(0);
        }
        let text = |wanted: &str| {
            let found = options.into_iter().find(|(key, _)| key == wanted);
            match found {
                Some((_, Some(Item::Text(text)))) => Some(text),
                _ => None,
            }
        };
        let mut info: Vec<(bstr::BString, bstr::BString)> = Vec::new();
        if let Some(directory) = directory {
            info.push(("wdir".into(), directory.into()));
        }
        if let Some(hosts) = text("pmix.host") {
            info.push(("host".into(), hosts.into()));
        }
        let environment = environment
            .into_iter()
            .filter(|variable| !variable.starts_with("PMIX_") || variable.starts_with("PMIX_MCA_"));
        info.extend(environment.map(|variable| (ENVIRONMENT_KEY.into(), variable.into())));
        pmi::SpawnCommand {
            program: program.into(),
            processes,
            arguments: arguments.into_iter().map(Into::into).collect(),
            info,
        }
    };
    pmi::Spawn {
        preput: Vec::new(),
        commands: apps.into_iter().map(command).collect(),
    }
}
