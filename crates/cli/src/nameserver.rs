//! `ropewalk nameserver`: keeps the names that several jobs share.

use std::{
    convert::Infallible,
    ffi::OsString,
    net::{Ipv6Addr, SocketAddr, ToSocketAddrs},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, bail};
use ropewalk_fabric::JobKey;
use ropewalk_launch::{NAME_SERVER_PORT, NameServer};

use ropewalk_bench::output::print;

/// Keep the names that programs of several jobs publish (MPI_Publish_name)
///
/// Jobs started with `ropewalk run -nameserver ADDRESS` find what each other's programs publish, and connect
/// (MPI_Comm_accept, MPI_Comm_connect). A name is forgotten when the job that published it is over. The
/// server runs until it is killed; jobs that go on publish their names again at the one that is started in
/// its place.
///
/// Only who has its key is listened to: a file that the server makes if it is not there, that nobody but its owner can
/// read, and that jobs on other hosts need a copy of. What is said is encrypted.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The address of this machine to listen on, or its name, for jobs that name the same; port 0 lets the
    /// system choose.
    #[arg(long, value_name = "ADDRESS[:PORT]", default_value = "127.0.0.1:6392")]
    listen: String,
    /// The file with the key [default: ~/.ropewalk-nameserver.key]
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

/// Runs the command until somebody ends it; prints where it listens.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let Err(error) = serve(arguments);
    eprintln!("ropewalk nameserver: {error:#}");
    ExitCode::from(2)
}

fn serve(arguments: &Arguments) -> anyhow::Result<Infallible> {
    let path = match &arguments.key_file {
        Some(path) => path.clone(),
        None => default_key_file(std::env::var_os("HOME"))
            .context("there is no HOME: name a file with --key-file")?,
    };
    let key =
        JobKey::read_from_or_make(&path).with_context(|| format!("cannot use the key {}", path.display()))?;
    let mut server = NameServer::bind(server_address(&arguments.listen)?, key)?;
    print(server.address())?;
    loop {
        server.serve(Duration::from_secs(60));
    }
}

/// `HOST`, `HOST:PORT`, or an address in the place of a host; of several the first of the older protocol,
/// which all hosts speak.
pub(crate) fn server_address(text: &str) -> anyhow::Result<SocketAddr> {
    let bracketed = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if let Some(address) = bracketed.and_then(|address| address.parse::<Ipv6Addr>().ok()) {
        return Ok((address, NAME_SERVER_PORT).into());
    }
    // Its last part could be meant as a port.
    if text.parse::<Ipv6Addr>().is_ok() {
        bail!("write [..] around the IPv6 address, as in [::1] or [::1]:{NAME_SERVER_PORT}, not {text:?}");
    }
    let addresses = match text.contains(':') {
        true => text.to_socket_addrs(),
        false => (text, NAME_SERVER_PORT).to_socket_addrs(),
    };
    let addresses =
        addresses.with_context(|| format!("a name server is at HOST or HOST:PORT, not {text:?}"))?;
    let address = addresses.min_by_key(SocketAddr::is_ipv6);
    address.with_context(|| format!("{text:?} has no address"))
}

/// Where the key is if nothing else is said, beside Hydra's own file there.
pub(crate) fn default_key_file(home: Option<OsString>) -> Option<PathBuf> {
    Some(Path::new(&home?).join(".ropewalk-nameserver.key"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A port may be missing, as with Hydra's; what is no address is refused.
    #[test]
    fn servers_have_addresses() {
        for (text, address) in [
            ("127.0.0.1", "127.0.0.1:6392"),
            ("127.0.0.1:7", "127.0.0.1:7"),
            ("localhost:0", "127.0.0.1:0"),
            ("[::1]", "[::1]:6392"),
            ("[::1]:8", "[::1]:8"),
        ] {
            assert_eq!(server_address(text).unwrap().to_string(), address, "{text}");
        }
        for text in [
            "",
            "127.0.0.1:",
            "127.0.0.1:99999",
            "a b",
            "[::1",
            "::1]",
            "[127.0.0.1]",
        ] {
            assert!(server_address(text).is_err(), "{text}");
        }
        for text in ["::1", "::1:6392"] {
            let error = server_address(text).unwrap_err().to_string();
            assert!(error.contains("[..]"), "{error}");
        }
    }
}
