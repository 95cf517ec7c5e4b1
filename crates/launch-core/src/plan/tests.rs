use std::collections::BTreeMap;

use super::*;
use crate::{hosts::parse_hosts, inherited::Inherited, job::JobEnvironment, placement::RankRun};

fn around() -> Surroundings {
    Surroundings {
        job: JobId([1; 16]),
        host_name: "own".to_owned(),
        processors: 2,
        is_port_free: |_| true,
        environment: vec![],
        working_directory: Some("/here".into()),
    }
}

/// So many ranks of a program.
fn ranks(ranks: u32) -> Segment {
    Segment {
        ranks,
        ..Segment::new("program")
    }
}

/// Programs of one job get their ranks one after the other; on other hosts they start where the launcher is.
#[test]
fn segments_share_the_ranks() {
    let first = Segment {
        ranks: 2,
        ..Segment::new("first")
    };
    let second = Segment {
        ranks: 3,
        working_directory: Some("/there".into()),
        ..Segment::new("second")
    };
    let mut spec = JobSpec {
        more: vec![second],
        hosts: parse_hosts("a:4,b").unwrap(),
        ..JobSpec::new("agent", first)
    };
    spec.pmi.universe = UniverseSize::Slots;
    let plan = plan(&spec, around()).unwrap();
    let group = plan.first_group();
    let programs: Vec<_> = (0..6)
        .map(|rank| {
            group
                .program_of(Rank(rank))
                .map(|(index, program)| (index, program.segment.working_directory.clone()))
        })
        .collect();
    let (here, there) = (Some((0, Some("/here".into()))), Some((1, Some("/there".into()))));
    assert_eq!(
        programs,
        [here.clone(), here, there.clone(), there.clone(), there, None]
    );
    assert_eq!(plan.start(HostId(1)).ranks, [Rank(4)]);
    let variables = plan.rank_variables(&group, HostId(1), Rank(4), 0, 1);
    assert_eq!(
        plan.pmi_group(&plan.first_group(), NodeId::ROOT)
            .mapping
            .to_string(),
        "(vector,(0,1,4),(1,1,1))"
    );
    assert_eq!(plan.pmi_group(&group, NodeId(1)).local, pmi::RankSet::range(0, 4));
    assert_eq!(plan.pmi_group(&plan.first_group(), NodeId::ROOT).segments, [2, 3]);
    assert_eq!(plan.pmi_group(&group, NodeId(1)).universe_size, Some(5));
    let value = |wanted| {
        variables
            .iter()
            .find(|(name, _)| *name == wanted)
            .map(|(_, value)| value.as_str())
    };
    assert_eq!(value("MASTER_ADDR"), Some("a"));
    assert_eq!(
        (value("RANK"), value("LOCAL_RANK"), value("WORLD_SIZE")),
        (Some("4"), Some("0"), Some("5"))
    );
}

/// The launcher's own host stands first in the tree, under a name that others know it by.
#[test]
fn the_own_host_is_started_by_the_launcher() {
    let spec = JobSpec {
        hosts: parse_hosts("a,b,localhost").unwrap(),
        ..JobSpec::new("agent", ranks(3))
    };
    let plan = plan(&spec, around()).unwrap();
    let names: Vec<_> = plan.hosts.iter().map(|host| host.name.as_str()).collect();
    assert_eq!(names, ["own", "a", "b"]);
    assert_eq!(plan.node_of(Rank(2)), Some(NodeId(1)));
    let mapping = plan.pmi_group(&plan.first_group(), NodeId::ROOT).mapping;
    assert_eq!(mapping.to_string(), "(vector,(1,2,1),(0,1,1))");
}

/// The address and the port of rank 0 are the user's, if the user gives them to the job or to the program.
#[test]
fn users_name_the_address_of_rank_0() {
    let mut spec = JobSpec::new("agent", ranks(2));
    let value = |spec: &JobSpec, wanted: &str| {
        let plan = plan(spec, around()).unwrap();
        let variables = plan.rank_variables(&plan.first_group(), HostId(0), Rank(1), 1, 2);
        variables.into_iter().find(|(name, _)| *name == wanted).unwrap().1
    };
    assert_eq!(value(&spec, "MASTER_ADDR"), "127.0.0.1");
    spec.environment.variables = vec![
        ("MASTER_ADDR".into(), "job".into()),
        ("MASTER_PORT".into(), "1".into()),
    ];
    assert_eq!(
        (value(&spec, "MASTER_ADDR"), value(&spec, "MASTER_PORT")),
        ("job".into(), "1".into())
    );
    spec.first.environment = vec![("MASTER_PORT".into(), "29500".into())];
    assert_eq!(value(&spec, "MASTER_PORT"), "29500");
}

/// "Environment given to a process", as Hydra does by default: "PMI_RANK .. global rank in the process
/// group", "PMI_ID .. set ONLY in port mode", "PMI_SPAWNED .. `1` in spawned processes only",
/// "PMI_TOTALVIEW .. never set it", "prefer fd mode always". What names descriptors comes to it where
/// they are made.
#[test]
fn ranks_are_told_what_hydra_tells() {
    let spec = JobSpec {
        hosts: parse_hosts("user@a:2,b").unwrap(),
        ..JobSpec::new("agent", ranks(3))
    };
    let plan = plan(&spec, around()).unwrap();
    let of_mpi = |group: &GroupPlan, rank| {
        let variables = plan
            .rank_variables(group, HostId(0), Rank(rank), 1, 2)
            .into_iter();
        let of_mpi = variables.filter(|(name, _)| ["PMI", "MPI", "HYD", "GFO"].contains(&&name[..3]));
        let texts = of_mpi.map(|(name, value)| format!("{name}={value}"));
        texts.collect::<Vec<_>>().join(" ")
    };
    let of_machine = "MPI_LOCALNRANKS=2 MPI_LOCALRANKID=1 GFORTRAN_UNBUFFERED_PRECONNECTED=y";
    let group = plan.first_group();
    assert_eq!(
        of_mpi(&group, 1),
        format!("PMI_RANK=1 PMI_SIZE=3 {of_machine} PMI_HOSTNAME=a MPIR_CVAR_CH3_INTERFACE_HOSTNAME=a")
    );
    let spawned = GroupPlan {
        id: 1,
        first: Rank(3),
        size: 2,
        spawner: Some(0),
        ..group
    };
    assert_eq!(
        of_mpi(&spawned, 4),
        format!(
            "PMI_RANK=1 PMI_SIZE=2 {of_machine} PMI_SPAWNED=1 PMI_HOSTNAME=a MPIR_CVAR_CH3_INTERFACE_HOSTNAME=a"
        )
    );
}

/// A program gets the variables that it names itself or else those of the job, then those that are set
/// for all, then its own; what nobody gets does not travel.
#[test]
fn programs_inherit_what_they_are_to() {
    let pair = |name: &str, value: &str| (OsString::from(name), OsString::from(value));
    let only = |name: &str| Some(Inherited::Only(vec![name.into()]));
    let segment = |inherited, environment| Segment {
        environment,
        inherited,
        ..Segment::new("program")
    };
    let spec = JobSpec {
        environment: JobEnvironment {
            inherited: Inherited::Only(vec!["A".into(), "B".into()]),
            variables: vec![pair("B", "set")],
        },
        more: vec![
            segment(None, vec![pair("A", "own")]),
            segment(Some(Inherited::Only(vec![])), vec![]),
        ],
        ..JobSpec::new("agent", segment(only("C"), vec![]))
    };
    let environment = ["A", "B", "C", "D", "PMI_RANK"].map(|name| pair(name, "inherited"));
    let around = Surroundings {
        environment: environment.to_vec(),
        ..around()
    };
    let plan = plan(&spec, around).unwrap();
    assert!(!plan.environment.inheritable.contains(&pair("D", "inherited")));
    let seen: Vec<Vec<_>> = plan
        .segments
        .iter()
        .map(|segment| {
            let last: BTreeMap<_, _> = plan.program_variables(segment).collect();
            last.into_iter()
                .map(|(name, value)| format!("{}={}", name.display(), value.display()))
                .collect()
        })
        .collect();
    assert_eq!(
        seen,
        [
            vec!["B=set", "C=inherited"],
            vec!["A=own", "B=set"],
            vec!["B=set"]
        ]
    );
}

/// The port for PyTorch is the next one that is free, if rank 0 runs on the launcher's host: behind the last one
/// the first comes. Nothing is known of the ports of another host.
#[test]
fn the_master_port_is_free() {
    let port = |hosts: &str, is_port_free: fn(u16) -> bool| {
        let spec = JobSpec {
            hosts: parse_hosts(hosts).unwrap(),
            ..JobSpec::new("agent", ranks(2))
        };
        let around = Surroundings {
            is_port_free,
            ..around()
        };
        plan(&spec, around).unwrap().environment.master_port
    };
    let usual = MASTER_PORT_MIN + 0x0101;
    assert_eq!(port("", |_| true), usual);
    assert_eq!(port("", |port| port > MASTER_PORT_MIN + 0x0105), usual + 5);
    assert_eq!(port("", |port| port < MASTER_PORT_MIN + 2), MASTER_PORT_MIN);
    assert_eq!(port("", |_| false), usual);
    assert_eq!(port("other,own", |_| false), usual);
    assert_eq!(port("other,own", |port| port != MASTER_PORT_MIN + 0x0101), usual);
}

/// Ranks are told of the network and of their graphics processors as the job asks for.
#[test]
fn ranks_are_told_of_network_and_graphics() {
    let told = |rank_network: RankNetwork, gpus_per_rank| {
        let mut spec = JobSpec::new("agent", "program");
        spec.network.rank_network = rank_network;
        spec.placement.gpus_per_rank = gpus_per_rank;
        let plan = plan(&spec, around()).unwrap();
        let variables = plan.rank_variables(&plan.first_group(), HostId(0), Rank(0), 1, 2);
        let told = variables
            .into_iter()
            .filter(|(name, _)| name.starts_with("MPIR") || name.starts_with("CUDA"));
        told.map(|(name, value)| format!("{name}={value}"))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        told(RankNetwork::HostName, None),
        ["MPIR_CVAR_CH3_INTERFACE_HOSTNAME=own"]
    );
    let interface = RankNetwork::Interface("ib0".to_owned());
    assert_eq!(
        told(interface, Some(0)),
        [
            "MPIR_CVAR_NEMESIS_TCP_NETWORK_IFACE=ib0",
            "CUDA_VISIBLE_DEVICES=-1"
        ]
    );
    assert_eq!(told(RankNetwork::Unsaid, Some(2)), ["CUDA_VISIBLE_DEVICES=2,3"]);
    assert_eq!(told(RankNetwork::Unsaid, None), [""; 0]);
}

/// "hosts `h1:2,h2:1,h3:3` -> `(vector,(0,1,2),(1,1,1),(2,1,3))`; `-ppn 2 -hosts h1,h2` -> `(vector,(0,2,2))`;
/// `h1:2,h2:2,h3:1` n=5 -> `(vector,(0,2,2),(2,1,1))`; Slurm one node, 2 tasks `(vector,(0,1,2))`"; of a
/// spawned process alone no "`(vector,0)`-like value .. 4.0.2 client rejects that, so do not send it".
#[test]
fn mappings_are_those_that_were_seen() {
    for (hosts, size, ranks_per_host, mapping) in [
        ("h1:2,h2:1,h3:3", 6, None, "(vector,(0,1,2),(1,1,1),(2,1,3))"),
        ("h1,h2", 4, Some(2), "(vector,(0,2,2))"),
        ("h1:2,h2:2,h3:1", 5, None, "(vector,(0,2,2),(2,1,1))"),
        ("h1:2", 2, None, "(vector,(0,1,2))"),
    ] {
        let mut spec = JobSpec {
            hosts: parse_hosts(hosts).unwrap(),
            ..JobSpec::new("agent", ranks(size))
        };
        spec.placement.ranks_per_host = ranks_per_host;
        let group = plan(&spec, around()).unwrap().first_group();
        assert_eq!(group.process_mapping().to_string(), mapping, "{hosts}");
        let run = RankRun {
            first: Rank(size),
            count: 1,
        };
        let alone = GroupPlan {
            id: 1,
            first: Rank(size),
            size: 1,
            runs: vec![vec![], vec![run]],
            ..group
        };
        assert_eq!(alone.process_mapping().to_string(), "(vector,(0,1,1))");
    }
}

/// A launcher that is itself a rank does not pass its own identity on, nor what "PMI_ID .. set ONLY in port mode",
/// "PMI_TOTALVIEW .. never set it" and "HYDI_CONTROL_FD .. leak of internals, do not copy" forbid.
#[test]
fn an_outer_job_does_not_shine_through() {
    let environment = [
        "PATH",
        "PMI_FD",
        "PMI_RANK",
        "PMI_ID",
        "PMI_PORT",
        "PMI_JOBID",
        "PMI_SPAWNED",
        "PMI_TOTALVIEW",
        "HYDI_CONTROL_FD",
        "MPI_LOCALRANKID",
        "PMIX_NAMESPACE",
        "FLUX_JOB_ID",
        "OMPI_COMM_WORLD_RANK",
        "PMIX_MCA_gds",
    ]
    .map(|name| (OsString::from(name), OsString::new()));
    let names: Vec<_> = inheritable_environment(environment)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names, ["PATH", "PMIX_MCA_gds"]);
}
