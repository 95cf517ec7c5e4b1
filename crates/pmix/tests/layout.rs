//! The declarations of libpmix's types beside its own header.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fs, process::Command};

/// The sizes and places that the assertions in `sys/types.rs` have, and the numbers that the code uses, are those of
/// the header: a C compiler says so.
#[test]
fn the_header_agrees() {
    let folder = tempfile::TempDir::new().unwrap();
    let source = folder.path().join("layout.c");
    let expected = [
        ("sizeof(pmix_proc_t)", 260),
        ("offsetof(pmix_proc_t, rank)", 256),
        ("sizeof(pmix_data_array_t)", 24),
        ("offsetof(pmix_data_array_t, array)", 16),
        ("sizeof(pmix_value_t)", 32),
        ("offsetof(pmix_value_t, data)", 8),
        ("sizeof(pmix_info_t)", 552),
        ("offsetof(pmix_info_t, flags)", 512),
        ("offsetof(pmix_info_t, value)", 520),
        ("sizeof(pmix_pdata_t)", 808),
        ("offsetof(pmix_pdata_t, value)", 776),
        ("sizeof(pmix_proc_info_t)", 296),
        ("offsetof(pmix_proc_info_t, hostname)", 264),
        ("offsetof(pmix_proc_info_t, pid)", 280),
        ("offsetof(pmix_proc_info_t, state)", 288),
        ("sizeof(pmix_query_t)", 24),
        ("offsetof(pmix_query_t, qualifiers)", 8),
        ("sizeof(pmix_app_t)", 56),
        ("offsetof(pmix_app_t, maxprocs)", 32),
        ("offsetof(pmix_app_t, ninfo)", 48),
        ("offsetof(pmix_server_module_t, fence_nb)", 24),
        ("offsetof(pmix_server_module_t, spawn)", 64),
        ("offsetof(pmix_server_module_t, disconnect)", 80),
        ("offsetof(pmix_server_module_t, query)", 120),
        ("offsetof(pmix_server_module_t, log)", 136),
        ("offsetof(pmix_server_module_t, job_control)", 152),
        ("offsetof(pmix_server_module_t, group)", 200),
        ("offsetof(pmix_server_module_t, client_connected2)", 216),
        ("sizeof(pmix_group_operation_t)", 4),
        ("PMIX_GROUP_CONSTRUCT", 0),
        ("PMIX_BOOL", 1),
        ("PMIX_STRING", 3),
        ("PMIX_SIZE", 4),
        ("PMIX_UINT16", 13),
        ("PMIX_UINT32", 14),
        ("PMIX_STATUS", 20),
        ("PMIX_PROC", 22),
        ("PMIX_INFO", 24),
        ("PMIX_BYTE_OBJECT", 27),
        ("PMIX_PERSIST", 30),
        ("PMIX_PERSIST_FIRST_READ", 1),
        ("PMIX_PROC_INFO", 38),
        ("PMIX_DATA_ARRAY", 39),
        ("PMIX_PROC_STATE_RUNNING", 5),
        ("PMIX_PROC_STATE_CONNECTED", 6),
        ("PMIX_PROC_RANK", 40),
        ("PMIX_RANGE_LOCAL", 2),
        ("PMIX_ERR_TIMEOUT", -24),
        ("PMIX_ERR_UNREACH", -25),
        ("PMIX_ERR_RESOURCE_BUSY", -28),
        ("PMIX_ERR_NOMEM", -32),
        ("PMIX_ERR_NOT_FOUND", -46),
        ("PMIX_ERR_NOT_SUPPORTED", -47),
        ("PMIX_ERR_PARTIAL_SUCCESS", -52),
        ("PMIX_ERR_DUPLICATE_KEY", -53),
        ("PMIX_ERR_LOST_CONNECTION", -61),
        ("PMIX_OPERATION_SUCCEEDED", -157),
    ];
    let checks = expected.map(|(what, number)| format!("_Static_assert({what} == {number}, \"{what}\");\n"));
    let text = format!(
        "#include <stddef.h>\n#include <pmix_server.h>\n#include <pmix_deprecated.h>\n{}",
        checks.concat()
    );
    fs::write(&source, text).unwrap();
    let flags = Command::new("pkg-config").args(["--cflags", "pmix"]).output();
    let flags = String::from_utf8(flags.unwrap().stdout).unwrap();
    let compiled = Command::new("cc")
        .args(["-fsyntax-only"])
        .args(flags.split_whitespace())
        .arg(&source)
        .output()
        .unwrap();
    assert!(
        compiled.status.success(),
        "cc and the Debian package libpmix-dev are needed: {}",
        String::from_utf8_lossy(&compiled.stderr)
    );
}
