//! Which variables of this command the programs get, as options and a variable of Hydra's say it.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
};

use anyhow::bail;
use ropewalk::launch::Inherited;

/// None of them.
pub(super) const fn none() -> Inherited {
    Inherited::Only(Vec::new())
}

/// Those of a list with commas between the names.
pub(super) fn list(names: &OsStr) -> Inherited {
    let names = names.as_bytes().split(|&byte| byte == b',');
    let names: Vec<OsString> = names.map(|name| OsStr::from_bytes(name).to_owned()).collect();
    Inherited::Only(names)
}

/// As the variable `HYDRA_ENV` has it.
pub(super) fn of_variable(text: &OsStr) -> anyhow::Result<Inherited> {
    match text.as_bytes() {
        b"all" => Ok(Inherited::All),
        b"none" => Ok(none()),
        bytes => match bytes.strip_prefix(b"list:") {
            Some(names) => Ok(list(OsStr::from_bytes(names))),
            None => bail!("HYDRA_ENV wants all, none or list:NAME,NAME.., not {text:?}"),
        },
    }
}
