//! Programs in C over `libpmi.so` and `libpmi2.so`, under our process manager, under Hydra, and under none.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::{
    env,
    path::Path,
    process::{Command, Output},
};

use tempfile::TempDir;

use rig::{PATIENCE, ROPEWALK, compile, libraries};

const HYDRA: &str = "mpiexec.hydra";

fn run(manager: &str, ranks: u32, program: &Path) -> Output {
    let mut command = assert_cmd::Command::new(manager);
    if manager == ROPEWALK {
        command.arg("run");
    }
    command
        .args(["-n", &ranks.to_string()])
        .arg(program)
        .timeout(PATIENCE)
        .output()
        .expect("mpiexec.hydra is missing: install the Debian packages mpich and libmpich-dev")
}

fn all_are_content(manager: &str, ranks: u32, program: &Path) {
    let output = run(manager, ranks, program);
    assert!(output.status.success(), "{manager}, {ranks} ranks: {output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    let content = text.matches(&format!("of {ranks} is content")).count();
    assert_eq!(content, ranks as usize, "{manager}: {text}");
}

/// A PMI-1 program meets its like under either process manager, and values of all kinds come back as they went in.
#[test]
fn pmi1_programs_meet() {
    let folder = TempDir::new().unwrap();
    let program = compile("tests/pmi_c/pmi1.c", &["pmi"], folder.path());
    for ranks in [1, 2, 5] {
        all_are_content(ROPEWALK, ranks, &program);
        all_are_content(HYDRA, ranks, &program);
    }
}

/// A PMI-2 program does so too, with several threads that use PMI at once.
#[test]
fn pmi2_programs_meet() {
    let folder = TempDir::new().unwrap();
    let program = compile("tests/pmi_c/pmi2.c", &["pmi2"], folder.path());
    for ranks in [1, 2, 5] {
        all_are_content(ROPEWALK, ranks, &program);
        all_are_content(HYDRA, ranks, &program);
    }
}

/// A program over Slurm's own libpmi2, compiled with Slurm's header, does with our process manager all that
/// the library has: beginning, attributes of job and node, keys and values around fences, names, end; on one
/// host, and with the agents of two.
#[test]
fn programs_over_slurms_library_meet() {
    let folder = TempDir::new().unwrap();
    let program = folder.path().join("of_slurm");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pmi_c/of_slurm.c");
    let compiled = Command::new("cc")
        .args(["-Wall", "-Werror", "-o"])
        .args([&program, &source])
        .arg("-l:libpmi2.so.0")
        .output()
        .unwrap();
    assert!(
        compiled.status.success(),
        "install the Debian package libpmi2-0-dev: {compiled:?}"
    );
    for (ranks, hosts) in [
        (1, "localhost"),
        (2, "localhost"),
        (5, "localhost"),
        (4, "alpha:2,beta:2"),
    ] {
        let output = assert_cmd::Command::new(ROPEWALK)
            .args(["run", "-launcher", "fork", "-hosts", hosts, "-n", &ranks.to_string()])
            .arg(&program)
            // Cargo has its folder in it, where ours is.
            .env_remove("LD_LIBRARY_PATH")
            .timeout(PATIENCE)
            .output()
            .unwrap();
        assert!(output.status.success(), "{ranks} ranks on {hosts}: {output:?}");
        let text = String::from_utf8_lossy(&output.stdout);
        for rank in 0..ranks {
            let content = format!("rank {rank} of {ranks} is content with ");
            let library = text.lines().find_map(|line| line.strip_prefix(&content));
            let library = library.unwrap_or_else(|| panic!("no {content:?} in {text}"));
            assert!(
                library.starts_with("/lib/") || library.starts_with("/usr/lib/"),
                "{library}"
            );
        }
    }
}

/// Without a process manager a process is alone, and all functions do for one what they do for many.
#[test]
fn a_program_may_be_alone() {
    let folder = TempDir::new().unwrap();
    for (source, library) in [("pmi1.c", "pmi"), ("pmi2.c", "pmi2")] {
        let output = Command::new(compile(
            &format!("tests/pmi_c/{source}"),
            &[library],
            folder.path(),
        ))
        .output()
        .unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(output.stdout, b"rank 0 of 1 is content\n");
    }
}

/// `PMI_Abort` ends the job with its exit code, though the others wait.
#[test]
fn an_abort_ends_the_job() {
    let folder = TempDir::new().unwrap();
    let output = run(
        ROPEWALK,
        3,
        &compile("tests/pmi_c/abort.c", &["pmi"], folder.path()),
    );
    assert_eq!(output.status.code(), Some(42), "{output:?}");
}

/// In port mode (`mpiexec -pmi-port`) there is no descriptor, and the process says itself who it is. A wrapper that
/// closes all descriptors does no harm then.
#[test]
fn programs_meet_in_port_mode() {
    let folder = TempDir::new().unwrap();
    let pmi1 = compile("tests/pmi_c/pmi1.c", &["pmi"], folder.path());
    let pmi2 = compile("tests/pmi_c/pmi2.c", &["pmi2"], folder.path());
    for (launcher, options, program) in [
        (HYDRA, &[][..], &pmi1),
        (ROPEWALK, &["run"], &pmi1),
        (ROPEWALK, &["run"], &pmi2),
    ] {
        let output = assert_cmd::Command::new(launcher)
            .args(options)
            .args(["-pmi-port", "-n", "3"])
            .args(["sh", "-c", "exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; exec \"$0\""])
            .arg(program)
            .timeout(PATIENCE)
            .output()
            .unwrap();
        assert!(output.status.success(), "{launcher} {options:?}: {output:?}");
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(text.matches("of 3 is content").count(), 3, "{text}");
    }
}

/// Each library has the name and all the functions of Slurm's, and no other, so that it can take its place.
#[test]
fn the_libraries_have_the_functions_of_slurms() {
    let expected = [
        (
            "pmi",
            "PMI_Abort PMI_Args_to_keyval PMI_Barrier PMI_Finalize PMI_Free_keyvals PMI_Get_appnum \
             PMI_Get_clique_ranks PMI_Get_clique_size PMI_Get_id PMI_Get_id_length_max PMI_Get_kvs_domain_id \
             PMI_Get_options PMI_Get_rank PMI_Get_size PMI_Get_universe_size PMI_Init PMI_Initialized \
             PMI_KVS_Commit PMI_KVS_Create PMI_KVS_Destroy PMI_KVS_Get PMI_KVS_Get_key_length_max \
             PMI_KVS_Get_my_name PMI_KVS_Get_name_length_max PMI_KVS_Get_value_length_max PMI_KVS_Iter_first \
             PMI_KVS_Iter_next PMI_KVS_Put PMI_Lookup_name PMI_Parse_option PMI_Publish_name \
             PMI_Spawn_multiple PMI_Unpublish_name",
        ),
        (
            "pmi2",
            "PMI2_Abort PMI2_Finalize PMI2_Info_GetJobAttr PMI2_Info_GetJobAttrIntArray PMI2_Info_GetNodeAttr \
             PMI2_Info_GetNodeAttrIntArray PMI2_Info_GetSize PMI2_Info_PutNodeAttr PMI2_Init PMI2_Initialized \
             PMI2_Job_Connect PMI2_Job_Disconnect PMI2_Job_GetId PMI2_Job_GetRank PMI2_Job_Spawn \
             PMI2_KVS_Fence PMI2_KVS_Get PMI2_KVS_Put PMI2_Nameserv_lookup PMI2_Nameserv_publish \
             PMI2_Nameserv_unpublish PMIX_Ring",
        ),
    ];
    for (library, functions) in expected {
        let file = libraries().join(format!("lib{library}.so"));
        let output = Command::new("nm")
            .args(["-D", "--defined-only"])
            .arg(&file)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let mut found: Vec<&str> = text.lines().filter_map(|line| line.split(' ').nth(2)).collect();
        found.sort_unstable();
        let mut functions: Vec<&str> = functions.split(' ').collect();
        functions.sort_unstable();
        assert_eq!(found, functions, "{library}");
        let output = Command::new("readelf").arg("-d").arg(&file).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains(&format!("[lib{library}.so.0]")), "{text}");
    }
}
