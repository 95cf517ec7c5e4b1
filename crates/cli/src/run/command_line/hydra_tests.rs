//! Options and variables of Hydra's that say what Hydra itself does.

use std::net::Ipv4Addr;

use ropewalk_launch::{RankNetwork, StartMethod};

use super::{
    tests::{hosts, parsed},
    *,
};

/// The batch system that there is gives the hosts, or the one that is named; none if the user says so.
#[test]
fn batch_systems_give_hosts() {
    let pbs = [("PBS_NODEFILE", "file")];
    let request = parsed("prog", &pbs, "n1\nn1\nn2\n").unwrap();
    assert_eq!(hosts(&request), [("n1", 2), ("n2", 1)]);
    assert_eq!(request.spec.agents.method, StartMethod::Ssh(vec![]));
    assert_eq!(request.spec.first.ranks, 3);
    let request = parsed("-rmk user prog", &pbs, "n1\n").unwrap();
    assert!(hosts(&request).is_empty());
    let lsf = [("LSB_MCPU_HOSTS", "a 4 b 2"), ("LSF_BINDIR", "/lsf")];
    let request = parsed("prog", &lsf, "").unwrap();
    assert_eq!(hosts(&request), [("a", 4), ("b", 2)]);
    assert_eq!(
        request.spec.agents.method,
        StartMethod::Command(vec!["/lsf/blaunch".into()])
    );
    let sge = [
        ("PE_HOSTFILE", "file"),
        ("SGE_ROOT", "/sge"),
        ("ARC", "lx"),
        lsf[0],
        ("HYDRA_RMK", "sge"),
    ];
    let request = parsed("prog", &sge, "a 3 all.q@a UNDEFINED\nb 1 all.q@b UNDEFINED\n").unwrap();
    assert_eq!(hosts(&request), [("a", 3), ("b", 1)]);
    let words = ["/sge/bin/lx/qrsh", "-inherit", "-V"];
    assert_eq!(
        request.spec.agents.method,
        StartMethod::Command(words.map(Into::into).into())
    );
    // An option counts more than the variable, and what is named must be there.
    let error = parsed("-rmk pbs prog", &sge, "").unwrap_err();
    assert!(error.to_string().contains("PBS_NODEFILE is not set"), "{error}");
    assert!(parsed("-rmk moon prog", &[], "").is_err());
    assert!(parsed("prog", &[("LSB_MCPU_HOSTS", "a b")], "").is_err());
}

/// Hosts are used by their slots if that is wanted, and this one not if that is.
#[test]
fn hosts_are_arranged() {
    let arranged = |words: &str| {
        let request = parsed(&format!("{words} -hosts a:2,localhost:1,b:3,c:1 prog"), &[], "").unwrap();
        let names = hosts(&request).into_iter().map(|(name, _)| name.to_owned());
        (names.collect::<Vec<_>>().join(" "), request.spec.first.ranks)
    };
    assert_eq!(arranged("-order-nodes ASCENDING").0, "localhost c a b");
    assert_eq!(arranged("-order-nodes down").0, "b a localhost c");
    assert_eq!(arranged("-skip-launch-node"), ("a b c".to_owned(), 6));
    assert!(parsed("-order-nodes sideways prog", &[], "").is_err());
    let error = parsed("-skip-launch-node prog", &[], "").unwrap_err();
    assert!(error.to_string().contains("leaves no host"), "{error}");
    let request = parsed("-f HYDRA_USE_LOCALHOST prog", &[], "n1\n").unwrap();
    assert_eq!(hosts(&request), [("localhost", 1)]);
}

/// Ranks are told the names of their hosts unless that is switched off, or the interface if one is named.
#[test]
fn names_are_told_unless_switched_off() {
    let told = |words: &str, variable: &str| {
        let variables = [("HYDRA_HOSTNAME_PROPAGATION", variable)];
        parsed(words, &variables, "").map(|request| request.spec.network.rank_network)
    };
    for (words, variable, network) in [
        ("prog", "1", RankNetwork::HostName),
        ("prog", "no", RankNetwork::Unsaid),
        ("-enable-hostname-propagation prog", "0", RankNetwork::HostName),
        ("-disable-hostname-propagation prog", "1", RankNetwork::Unsaid),
        ("-iface 127.0.0.1 prog", "1", RankNetwork::HostName),
        ("-iface lo prog", "1", RankNetwork::Interface("lo".to_owned())),
    ] {
        assert_eq!(told(words, variable).unwrap(), network, "{words} {variable}");
    }
    assert!(told("prog", "maybe").is_err());
}

/// This host may be named for the others, and windows may come to it through ssh.
#[test]
fn this_host_is_reached_as_wanted() {
    let spec = |words: &str| parsed(words, &[], "").unwrap().spec;
    let spec_there = spec("-localhost localhost -enable-x -hosts a,b prog");
    assert_eq!(spec_there.network.interface, Some(Ipv4Addr::LOCALHOST.into()));
    assert_eq!(spec_there.agents.method, StartMethod::Ssh(vec!["-X".into()]));
    assert_eq!(
        spec("-disable-x prog").agents.method,
        StartMethod::Ssh(vec!["-x".into()])
    );
    // Alone it need not be reached.
    assert_eq!(
        spec("-localhost no.such.host.invalid prog").network.interface,
        None
    );
    assert_eq!(spec("-gpus-per-proc 2 prog").placement.gpus_per_rank, Some(2));
    assert_eq!(spec("-gpus-per-proc AUTO prog").placement.gpus_per_rank, None);
    assert!(spec("-pmi-port prog").pmi.by_port && !spec("prog").pmi.by_port);
    assert!(parsed("-gpus-per-proc 100000 prog", &[], "").is_err());
}

/// Options that only tune Hydra are named if verbose, and change nothing.
#[test]
fn what_tunes_hydra_is_passed_over() {
    let words = "-demux select -topolib hwloc -profile -membind firsttouch prog -x";
    let request = parsed(words, &[("HYDRA_TOPOLIB", "hwloc"), ("HYDRA_DEBUG", "on")], "").unwrap();
    assert_eq!(request.spec.first.program, "prog");
    assert!(request.output.verbose);
    for name in ["-demux select", "-topolib", "-profile", "HYDRA_TOPOLIB"] {
        let is_named = |notice: &String| notice.contains(name);
        assert!(
            request.output.notices.iter().any(is_named),
            "{name}: {:?}",
            request.output.notices
        );
    }
    assert!(parsed("prog", &[], "").unwrap().output.notices.is_empty());
}

/// Options that would make another job are refused, with a way to do it otherwise.
#[test]
fn what_makes_another_job_is_refused() {
    for (words, instead) in [
        ("-membind interleave:0,1 prog", "numactl"),
        ("-launcher manual prog", "-launcher-exec CMD"),
        ("-hybrid-hosts prog", "same path"),
    ] {
        let error = parsed(words, &[], "").unwrap_err().to_string();
        assert!(error.contains(instead), "{words}: {error}");
    }
    assert!(parsed("prog", &[("HYDRA_MEMBIND", "bind:0")], "").is_err());
}

/// A name server is an address and a key; what is missing is said.
#[test]
fn a_name_server_has_an_address_and_a_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(".ropewalk-nameserver.key");
    let home = [("HOME", folder.path().to_str().unwrap())];
    let error = |words: &str, variables| format!("{:#}", parsed(words, variables, "").unwrap_err());
    assert!(error("-nameserver localhost prog", &home).contains("ropewalk nameserver"));
    assert!(error("-nameserver localhost prog", &[]).contains("--nameserver-key"));
    assert!(error("--nameserver-key key prog", &home).contains("-nameserver HOST"));
    let key = JobKey::read_from_or_make(&path).unwrap();
    assert!(error("-nameserver localhost:no prog", &home).contains("localhost:no"));
    assert!(error("-nameserver localhost:0 prog", &home).contains("not 0"));
    let other = format!("-nameserver 10.0.0.1:7 --nameserver-key {} prog", path.display());
    for (words, variables, address) in [
        ("-nameserver localhost prog", &home[..], "127.0.0.1:6392"),
        (&other, &[], "10.0.0.1:7"),
    ] {
        let access = parsed(words, variables, "")
            .unwrap()
            .spec
            .pmi
            .name_server
            .unwrap();
        assert_eq!(access.address.to_string(), address);
        assert_eq!(access.key.as_bytes(), key.as_bytes());
    }
    assert!(parsed("prog", &home, "").unwrap().spec.pmi.name_server.is_none());
}

/// The file that the variable names is read before the command, whose options count more; not if the command names one.
#[test]
fn a_file_of_options_is_read_unasked() {
    let variables = [("HYDRA_CONFIG_FILE", "file")];
    let file = "# ours\n-genv A file -l\n-hosts a:2,b -ppn 3\n";
    let request = parsed("-n 2 prog", &variables, file).unwrap();
    assert_eq!(hosts(&request), [("a", 2), ("b", 1)]);
    assert!(request.output.prefix.is_some());
    assert_eq!(request.spec.placement.ranks_per_host, Some(3));
    let request = parsed("-hosts c -genv A command -ppn 1 prog", &variables, file).unwrap();
    assert_eq!(hosts(&request), [("c", 1)]);
    let last = request.spec.environment.variables.last().unwrap();
    assert_eq!(*last, ("A".into(), "command".into()));
    assert_eq!(request.spec.placement.ranks_per_host, Some(1));
    let home = parsed("prog", &[("HOME", "/home/me")], file).unwrap();
    assert_eq!(hosts(&home), [("a", 2), ("b", 1)]);
    // Programs stand in one place.
    let request = parsed("-verbose", &variables, "-n 2 a\n-n 3 b\n").unwrap();
    assert_eq!(
        (request.spec.first.program.to_str(), request.spec.more.len()),
        (Some("a"), 1)
    );
    let error = parsed("prog", &variables, "-n 2 a\n").unwrap_err();
    assert!(error.to_string().contains("-configfile"), "{error}");
    let request = parsed("-configfile other", &variables, "-n 2 a\n").unwrap();
    assert_eq!((request.spec.first.ranks, request.spec.more.len()), (2, 0));
}
