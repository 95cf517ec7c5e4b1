use std::{net::Ipv4Addr, num::NonZeroU32, time::Duration};

use anyhow::bail;
use ropewalk_launch::{Binding, DealOrder, Inherited, Mapping, Part, Parts, StartMethod};

use super::*;

pub(super) fn parsed(words: &str, variables: &[(&str, &str)], file: &str) -> anyhow::Result<Request> {
    let variable = |name: &str| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| OsString::from(value))
    };
    // What this machine has of its own is left out.
    let read = |path: &Path| match path.starts_with("/etc") {
        true => Err(std::io::ErrorKind::NotFound.into()),
        false => Ok(file.as_bytes().to_vec()),
    };
    let around = Surroundings {
        agent: "agent".into(),
        variable: &variable,
        read: &read,
        count_parts: &|part| Ok(CountedParts { part, count: 2 }),
        read_key: &JobKey::read_from,
    };
    match parse(words.split(' ').map(OsString::from).collect(), &around)? {
        Command::Run(request) => Ok(*request),
        Command::Help => bail!("help"),
        Command::Info => bail!("info"),
        Command::Version => bail!("version"),
    }
}

pub(super) fn hosts(request: &Request) -> Vec<(&str, u32)> {
    let hosts = request.spec.hosts.iter();
    hosts.map(|host| (host.name(), host.slots)).collect()
}

/// One dash or two, values behind a space or `=`, and the program's own options left to it.
#[test]
fn options_are_read_as_hydra_has_them() {
    let request = parsed(
        "-n 4 --env A=b -genv C d -wdir=/tmp -l -ppn 2 prog -n 7 --env x",
        &[],
        "",
    )
    .unwrap();
    let spec = &request.spec;
    assert_eq!((spec.first.ranks, spec.first.program.to_str()), (4, Some("prog")));
    assert_eq!(spec.first.arguments, ["-n", "7", "--env", "x"]);
    assert_eq!(spec.first.environment, [("A".into(), "b".into())]);
    assert_eq!(spec.environment.variables, [("C".into(), "d".into())]);
    assert_eq!(spec.placement.ranks_per_host, Some(2));
    assert_eq!(request.output.prefix, Some(Pattern::label()));
}

/// Programs behind colons, and the same from a file.
#[test]
fn several_programs_are_one_job() {
    for words in ["-n 2 a x : -np 3 -env V 1 b", "-configfile file"] {
        let request = parsed(words, &[], "-n 2 a x\n# no program\n\n-np 3 -env V 1 b\n").unwrap();
        let spec = request.spec;
        assert_eq!(
            (spec.first.ranks, spec.first.program.to_str(), spec.more.len()),
            (2, Some("a"), 1)
        );
        assert_eq!(
            (spec.more[0].ranks, spec.more[0].program.to_str()),
            (3, Some("b"))
        );
        assert_eq!(spec.more[0].environment, [("V".into(), "1".into())]);
    }
    assert!(parsed("-n 2 a :", &[], "").is_ok());
    // A job without what was meant is worse than none.
    for words in ["-n 2 a : -n 3", "a : -env V 1", "a : b : -n 3"] {
        let refused = parsed(words, &[], "").unwrap_err().to_string();
        assert_eq!(refused, "no program behind the last `:`", "{words}");
    }
    assert_eq!(
        parsed("a : -configfile file", &[], "b\n")
            .unwrap()
            .spec
            .more
            .len(),
        1
    );
    assert!(parsed("-n 2 : b", &[], "").is_err());
    assert!(parsed("-configfile file", &[], "-configfile file").is_err());
}

/// Times are in seconds, as for Hydra, or have units.
#[test]
fn times_have_units() {
    let timeout = |text: &str| {
        parsed(&format!("--timeout {text} a"), &[], "").map(|request| request.spec.time_limits.timeout)
    };
    for (text, milliseconds) in [
        ("2", 2000),
        ("0.5", 500),
        ("1.5s", 1500),
        ("500ms", 500),
        ("10m", 600_000),
        ("1h30m", 5_400_000),
    ] {
        assert_eq!(
            timeout(text).unwrap(),
            Some(Duration::from_millis(milliseconds)),
            "{text}"
        );
    }
    for text in ["-1", "nan", "1e300", "1x", "h", "inf"] {
        let refused = timeout(text).unwrap_err().to_string();
        let expected = format!(
            "option --timeout wants seconds, or a time such as 500ms, 10m, 1h30m or 2d, not {text:?}"
        );
        assert_eq!(refused, expected);
    }
}

/// Hydra's variable limits no time if it is negative or empty.
#[test]
fn the_variable_may_set_no_limit() {
    let timeout =
        |text| parsed("a", &[("MPIEXEC_TIMEOUT", text)], "").map(|request| request.spec.time_limits.timeout);
    assert_eq!(timeout("60").unwrap(), Some(Duration::from_secs(60)));
    assert_eq!(timeout("-1").unwrap(), None);
    assert_eq!(timeout("").unwrap(), None);
    assert!(timeout("soon").is_err());
}

/// A file that should name hosts and names none is not taken for this host.
#[test]
fn a_host_file_names_hosts() {
    let refused = parsed("-f hosts a", &[], "# none\n\n").unwrap_err().to_string();
    assert_eq!(
        refused,
        "the host file hosts names no host; localhost stands for this one"
    );
}

/// Without a number of ranks there are as many on each host as -ppn says, as with Hydra and mpirun.
#[test]
fn ranks_per_host_say_how_many_there_are() {
    let slurm = [
        ("SLURM_JOB_NODELIST", "n[1-2]"),
        ("SLURM_TASKS_PER_NODE", "2(x2)"),
    ];
    for (words, variables, ranks) in [
        ("-ppn 2 prog", &[][..], 2),
        ("-hosts a,b -ppn 2 prog", &[], 4),
        ("-hosts a:4,b:4 -ppn 2 prog", &[], 4),
        ("-npernode 2 prog", &[], 2),
        ("-N 2 prog", &[], 2),
        ("--map-by ppr:2:node -hosts a,b prog", &[], 4),
        ("-ppn 1 prog", &slurm, 2),
        ("-n 3 -ppn 2 -hosts a,b prog", &[], 3),
    ] {
        let spec = parsed(words, variables, "").unwrap().spec;
        assert_eq!(spec.first.ranks, ranks, "{words}");
    }
}

/// Words of Open MPI's mpirun do what they do there, or nothing if there is nothing to do.
#[test]
fn words_of_mpirun_are_taken() {
    let words = "--oversubscribe --allow-run-as-root -q --use-hwthread-cpus --prefix /opt -x A=1 -x B -x C \
                 --mca btl self,tcp --tag-output --map-by ppr:2:node:OVERSUBSCRIBE prog";
    let request = parsed(words, &[("B", "2")], "").unwrap();
    let variables = &request.spec.environment.variables;
    let variables: Vec<_> = variables
        .iter()
        .map(|(name, value)| (name.to_str().unwrap(), value.to_str().unwrap()))
        .collect();
    assert_eq!(variables, [("A", "1"), ("B", "2"), ("OMPI_MCA_btl", "self,tcp")]);
    assert!(request.output.prefix.is_some());
    assert_eq!(request.spec.placement.ranks_per_host, Some(2));
    let order = |words| parsed(words, &[], "").map(|request| request.spec.placement.order);
    assert_eq!(
        order("--map-by node:OVERSUBSCRIBE prog").unwrap(),
        DealOrder::ByNode
    );
    for words in ["ppr:2:moon", "ppr:0:socket", "ppr:2:core:2", "ppr:socket"] {
        let error = parsed(&format!("--map-by {words} prog"), &[], "").unwrap_err();
        assert!(error.to_string().contains("ppr:2:socket"), "{words}: {error}");
    }
    let request = parsed("--report-bindings --output-filename out prog", &[], "").unwrap();
    assert!(request.spec.placement.tells_bindings);
    let folder = request.output.folder.unwrap();
    assert_eq!((folder.path.to_str(), folder.is_shown), (Some("out"), true));
    let folder = parsed("--output-filename out:nocopy prog", &[], "")
        .unwrap()
        .output
        .folder;
    assert!(folder.is_some_and(|folder| folder.path == Path::new("out") && !folder.is_shown));
    assert!(parsed("--output-filename :nocopy prog", &[], "").is_err());
}

/// Open MPI's modifiers behind an order and a binding: ranks may be more than slots and share cores anyway, and `PE=N`
/// binds each rank to N cores, or hardware threads if `-bind-to` says so.
#[test]
fn modifiers_of_mpirun_are_taken() {
    let placement = |words: &str| {
        let request = parsed(&format!("{words} prog"), &[], "");
        request
            .unwrap_or_else(|error| panic!("{words}: {error:#}"))
            .spec
            .placement
    };
    let bound = |text: &str| text.parse::<Binding>().unwrap();
    for (words, binding) in [
        ("--map-by :OVERSUBSCRIBE", "none"),
        ("--map-by ppr:2:node:PE=3", "core:3"),
        ("--map-by ppr:2:node:pe=3:OVERSUBSCRIBE", "core:3"),
        ("--map-by node:OVERSUBSCRIBE,PE=3", "core:3"),
        ("--map-by slot:PE=2 --bind-to hwthread", "hwthread:2"),
        ("--bind-to core --map-by slot:PE=2", "core:2"),
        ("--map-by slot:PE=2 --bind-to none", "none"),
        ("--bind-to core:overload-allowed", "core"),
        ("--bind-to core:2", "core:2"),
    ] {
        assert_eq!(placement(words).binding, bound(binding), "{words}");
    }
    assert_eq!(placement("--map-by node:PE=2").order, DealOrder::ByNode);
    assert_eq!(placement("--map-by ppr:2:node:PE=2").ranks_per_host, Some(2));
    assert_eq!(placement("--pernode").ranks_per_host, Some(1));
    let in_socket = Binding::Parts {
        parts: "core:2".parse().unwrap(),
        mapping: Mapping {
            domain: Part::Socket.into(),
            ranks: NonZeroU32::new(3).unwrap(),
        },
    };
    assert_eq!(placement("--map-by ppr:3:socket:PE=2").binding, in_socket);
    for (words, why) in [
        ("--map-by slot:PE=0", "PE=CORES"),
        ("--map-by slot:SPAN", "PE=CORES"),
        (
            "--map-by slot:PE=2 --bind-to socket",
            "core, hwthread and none only",
        ),
    ] {
        let error = parsed(&format!("{words} prog"), &[], "").unwrap_err();
        assert!(error.to_string().contains(why), "{words}: {error}");
    }
}

/// Ranks that are counted by parts of a host are bound to them unless something else is said, and a later number for
/// each host counts alone.
#[test]
fn ranks_are_counted_by_parts() {
    let filling = |parts: Part, domain: Part, ranks| Binding::Parts {
        parts: parts.into(),
        mapping: Mapping {
            domain: domain.into(),
            ranks: NonZeroU32::new(ranks).unwrap(),
        },
    };
    let (core, socket, numa) = (Part::Core, Part::Socket, Part::Numa);
    for (words, ranks, binding) in [
        ("--npersocket 3 prog", 6, filling(socket, socket, 3)),
        (
            "--map-by ppr:2:socket:OVERSUBSCRIBE prog",
            4,
            filling(socket, socket, 2),
        ),
        ("--map-by ppr:1:numa -hosts a:9,b prog", 4, filling(numa, numa, 1)),
        (
            "--map-by ppr:2:socket -bind-to core prog",
            4,
            filling(core, socket, 2),
        ),
        ("--map-by ppr:2:socket -bind-to none prog", 4, Binding::Nowhere),
        ("--npersocket 2 -n 3 prog", 3, filling(socket, socket, 2)),
        (
            "--npersocket 2 --rank-by socket prog",
            4,
            filling(socket, socket, 1),
        ),
    ] {
        let spec = parsed(words, &[], "").unwrap().spec;
        assert_eq!(
            (spec.first.ranks, spec.placement.binding),
            (ranks, binding),
            "{words}"
        );
        assert_eq!(spec.placement.counted.unwrap().count, 2, "{words}");
    }
    let placement = parsed("--npersocket 3 -ppn 2 prog", &[], "")
        .unwrap()
        .spec
        .placement;
    assert_eq!((placement.ranks_per_host, placement.counted), (Some(2), None));
    assert!(parsed("--npersocket 0 prog", &[], "").is_err());
}

/// Ranks are numbered by hosts or by the parts that they are mapped to; other orders are refused with a sentence.
#[test]
fn ranks_are_numbered_as_said() {
    let placement = |words: &str| parsed(words, &[], "").map(|request| request.spec.placement);
    for (words, numbering) in [
        ("prog", None),
        ("--rank-by slot prog", Some(DealOrder::BySlot)),
        ("--rank-by node prog", Some(DealOrder::ByNode)),
        ("--rank-by core -bind-to core prog", None),
        ("-map-by socket --rank-by socket -bind-to core prog", None),
        (
            "--map-by ppr:2:socket --rank-by slot prog",
            Some(DealOrder::BySlot),
        ),
    ] {
        assert_eq!(placement(words).unwrap().numbering, numbering, "{words}");
    }
    for (words, why) in [
        ("--rank-by moon prog", "slot, node or a part"),
        ("--rank-by socket prog", "-map-by socket"),
        ("--rank-by core --npersocket 2 prog", "ppr:N:core"),
        ("--rank-by slot -map-by socket -bind-to core prog", "ppr:N:socket"),
        ("--rank-by node -rankmap 0,0 prog", "-rankmap"),
    ] {
        let error = placement(words).unwrap_err().to_string();
        assert!(error.contains(why), "{words}: {error}");
    }
}

/// Hosts come from options, then from Hydra's variables, then from Slurm's.
#[test]
fn hosts_are_found() {
    let slurm = [
        ("SLURM_JOB_NODELIST", "n[1-2]"),
        ("SLURM_TASKS_PER_NODE", "4(x2)"),
    ];
    let request = parsed("prog", &slurm, "").unwrap();
    assert_eq!(request.spec.first.ranks, 8, "one in each slot");
    assert_eq!(parsed("-n 3 prog", &slurm, "").unwrap().spec.first.ranks, 3);
    assert_eq!(hosts(&request), [("n1", 4), ("n2", 4)]);
    assert_eq!(request.spec.agents.method, StartMethod::Srun(Vec::new()));
    // Hosts of the allocation are reached by its launcher also if they are named; others are not.
    for (words, method) in [
        ("-hosts n1,n2 prog", StartMethod::Srun(Vec::new())),
        ("-hosts n1,other prog", StartMethod::Ssh(Vec::new())),
        ("-rmk user -hosts n1 prog", StartMethod::Ssh(Vec::new())),
        ("-launcher ssh -hosts n1 prog", StartMethod::Ssh(Vec::new())),
    ] {
        let request = parsed(words, &slurm, "").unwrap();
        assert_eq!(request.spec.agents.method, method, "{words}");
    }
    let hydra = [
        slurm[0],
        ("HYDRA_HOST_FILE", "file"),
        ("HYDRA_LAUNCHER", "ssh"),
        ("HYDRA_LAUNCHER_EXTRA_ARGS", "-p 2222"),
    ];
    let request = parsed("prog", &hydra, "h1:2\nh2 slots=3\n").unwrap();
    assert_eq!(hosts(&request), [("h1", 2), ("h2", 3)]);
    assert_eq!(
        request.spec.agents.method,
        StartMethod::Ssh(vec!["-p".into(), "2222".into()])
    );
    let request = parsed("-hosts a,b:2 -launcher-exec my|rsh prog", &hydra, "").unwrap();
    assert_eq!(hosts(&request), [("a", 1), ("b", 2)]);
    assert_eq!(
        request.spec.agents.method,
        StartMethod::Command(["my|rsh", "-p", "2222"].map(Into::into).into())
    );
    assert!(parsed("-hosts -oProxyCommand=id prog", &[], "").is_err());
}

/// Hydra's variables say where ranks run, unless options do.
#[test]
fn variables_place_and_bind() {
    let variables = [("HYDRA_BINDING", "socket"), ("HYDRA_MAPPING", "node")];
    let placement = |words| parsed(words, &variables, "").unwrap().spec.placement;
    let to = Binding::to_parts;
    let found = placement("prog");
    assert_eq!(
        (found.binding, found.order),
        (to(Part::Socket), DealOrder::ByNode)
    );
    let found = placement("-bind-to core -map-by slot prog");
    assert_eq!((found.binding, found.order), (to(Part::Core), DealOrder::BySlot));
    // An option counts more, whichever of both meanings it has.
    let found = placement("-map-by numa prog");
    let binding = Binding::Parts {
        parts: Part::Socket.into(),
        mapping: Parts::from(Part::Numa).into(),
    };
    assert_eq!((found.binding, found.order), (binding, DealOrder::BySlot));
    let error = parsed("prog", &[("HYDRA_BINDING", "moon")], "").unwrap_err();
    assert!(
        format!("{error:#}").contains("the variable HYDRA_BINDING"),
        "{error:#}"
    );
}

/// Both options say one thing together, and what only one of them says is told or refused.
#[test]
fn parts_are_bound_to_in_an_order() {
    let request = |words: &str| parsed(words, &[], "").unwrap();
    let bound = |words: &str| request(words).spec.placement.binding;
    assert_eq!(bound("prog"), Binding::Nowhere);
    assert_eq!(bound("-bind-to rr prog"), Binding::RoundRobin);
    assert_eq!(bound("-bind-to core:2 -bind-to none prog"), Binding::Nowhere);
    assert_eq!(bound("--bind-to=user:1,0 prog"), "user:1,0".parse().unwrap());
    let both = Binding::Parts {
        parts: "core:2".parse().unwrap(),
        mapping: "l3cache".parse::<Parts>().unwrap().into(),
    };
    assert_eq!(bound("-map-by l3ucache -bind-to core:2 prog"), both);
    let found = request("-map-by node -map-by l3cache -bind-to core:2 prog")
        .spec
        .placement;
    assert_eq!((found.binding, found.order), (both, DealOrder::ByNode));
    for (words, why) in [
        ("-bind-to gpu0 prog", "user:LIST"),
        ("-bind-to core:0 prog", "1 or more"),
        ("-bind-to user:0,,1 prog", "user:LIST"),
        ("-bind-to board prog", "hwthread"),
        ("-map-by moon prog", "slot, node"),
    ] {
        let error = format!("{:#}", parsed(words, &[], "").unwrap_err());
        assert!(error.contains(why), "{words}: {error}");
    }
    let passed_over = |words, variables: &[_]| {
        let request = parsed(words, variables, "").unwrap();
        assert_eq!(request.spec.placement.binding, Binding::Nowhere);
        request
            .output
            .notices
            .iter()
            .any(|notice| notice.contains("is passed over"))
    };
    for words in [
        "-map-by core prog",
        "-map-by socket prog",
        "--map-by numa:OVERSUBSCRIBE prog",
    ] {
        assert!(passed_over(words, &[]), "{words}");
    }
    assert!(passed_over("prog", &[("HYDRA_MAPPING", "socket")]));
    assert!(!passed_over("prog", &[]));
}

/// A map has a host for each rank; ranks that may have to go elsewhere have none.
#[test]
fn ranks_are_mapped_to_hosts() {
    let request = parsed("-hosts a,b -rankmap 1,(0,2,1) -n 3 prog", &[], "").unwrap();
    let map = request.spec.placement.rank_map.unwrap();
    assert_eq!(map.hosts().collect::<Vec<_>>(), [1, 0, 1]);
    let request = parsed("-hosts a,b -rankmap 0,0,1,1 prog", &[], "").unwrap();
    assert_eq!(request.spec.first.ranks, 4, "as many as the map has hosts for");
    let error = parsed("-rankmap 0,@f prog", &[], "").unwrap_err();
    assert!(format!("{error:#}").contains("\"@f\" says no host"), "{error:#}");
    let words = "-hosts a,b -rankmap 0,1 --partner --checkpoint d -n 2 prog";
    let error = parsed(words, &[], "").unwrap_err();
    assert!(
        error.to_string().contains("does not go with --partner"),
        "{error}"
    );
}

/// An option counts, else Hydra's variable, else all variables are passed on.
#[test]
fn variables_are_passed_on_as_told() {
    let inherited = |words, value| {
        let variables = [("HYDRA_ENV", value)];
        parsed(words, &variables, "").unwrap().spec.environment.inherited
    };
    let only = |names: &[&str]| Inherited::Only(names.iter().map(OsString::from).collect());
    assert_eq!(inherited("prog", "all"), Inherited::All);
    assert_eq!(inherited("prog", "none"), only(&[]));
    assert_eq!(inherited("prog", "list:A,B"), only(&["A", "B"]));
    assert_eq!(inherited("-genvall prog", "none"), Inherited::All);
    assert_eq!(inherited("-genvlist C prog", "all"), only(&["C"]));
    // A program's own wish is its own.
    let spec = parsed("-envlist A a : -envall b : c", &[("HYDRA_ENV", "none")], "")
        .unwrap()
        .spec;
    assert_eq!(
        (spec.environment.inherited, spec.first.inherited),
        (only(&[]), Some(only(&["A"])))
    );
    assert_eq!(spec.more[0].inherited, Some(Inherited::All));
    assert_eq!(spec.more[1].inherited, None);
    assert!(parsed("prog", &[("HYDRA_ENV", "some")], "").is_err());
}

/// Unknown options are refused, and never taken for a program.
#[test]
fn unknown_options_are_refused() {
    for words in [
        "-no-such prog",
        "-n x prog",
        "-n",
        "-n 2",
        "--detect 0 prog",
        "--encrypt=yes prog",
        "--log xml prog",
        "-env A",
    ] {
        assert!(parsed(words, &[], "").is_err(), "{words}");
    }
}

/// An interface may be named by its address or by its name; of one that is not there the error says which there are.
#[test]
fn an_interface_has_an_address_or_a_name() {
    for words in ["-iface 127.0.0.1", "-iface lo"] {
        let request = parsed(&format!("{words} -hosts a,b true"), &[], "").unwrap();
        assert_eq!(
            request.spec.network.interface,
            Some(Ipv4Addr::LOCALHOST.into()),
            "{words}"
        );
    }
    let error = parsed("-iface eth99 -hosts a,b true", &[], "").unwrap_err();
    assert!(error.to_string().contains("not \"eth99\"; there are "), "{error}");
}

/// Nothing is encrypted unless somebody asks for it, with one dash or two.
#[test]
fn encryption_is_asked_for() {
    for (words, encrypt) in [
        ("true", false),
        ("--encrypt true", true),
        ("-encrypt -hosts a,b true", true),
    ] {
        let request = parsed(words, &[], "").unwrap();
        assert_eq!(request.spec.network.encrypt, encrypt, "{words}");
    }
}

/// Slots beyond all counting are refused later as too many ranks, and not counted round to a few.
#[test]
fn slots_do_not_wrap() {
    let request = parsed("-hosts a:4294967295,b:2 true", &[], "").unwrap();
    assert_eq!(request.spec.first.ranks, u32::MAX);
}

/// Another command takes some of these options, in all their spellings, out of its words; what is behind `--` is its
/// own.
#[test]
fn other_commands_have_some_options() {
    let words = "reduce -o - -hosts a,b -np 2 --encrypt in --host=c -machinefile f -- -H d";
    let words = words.split(' ').map(OsString::from).collect();
    let (others, options) = divide(words, &["-hosts", "-hostfile", "--encrypt"]);
    let text = |words: Vec<OsString>| words.join(std::ffi::OsStr::new(" "));
    assert_eq!(text(others), "reduce -o - -np 2 in -- -H d");
    assert_eq!(text(options), "-hosts a,b --encrypt --host=c -machinefile f");
}
