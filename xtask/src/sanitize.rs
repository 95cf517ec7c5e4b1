//! Tests of unsafe code with the address sanitizer.

use anyhow::ensure;

use crate::{
    project,
    shell::{cargo, output, program, run, succeeds},
};

/// Runs the tests of `fabric`'s own modules, where memory is shared, lent and mapped, with the compiler's
/// address sanitizer. It ends a test that touches memory that it does not own, and fails if memory is lost
/// that `leaks.txt` does not name. The tests of loom, which switches between stacks of its own, are left out.
///
/// # Errors
/// If a test fails, memory leaks, or something cannot be built.
pub(crate) fn sanitize() -> anyhow::Result<()> {
    ensure!(
        succeeds(program("llvm-symbolizer", &["--version"])),
        "leaks are named by llvm-symbolizer, which is not there; on Debian: apt-get install llvm"
    );
    let host = output(program("rustc", &["--print", "host-tuple"]))?;
    // A target is named so that build scripts and macros, which the compiler runs itself, are left as they are.
    let mut test = cargo(&["test", "-p", "ropewalk-fabric", "--lib", "--locked", "--target"]);
    test.arg(host.trim());
    test.args(["--", "--skip", "interleavings"]);
    // The sanitizers are behind a flag of the compiler that stable releases accept only so.
    test.env("RUSTC_BOOTSTRAP", "1");
    test.env("RUSTFLAGS", "-Zsanitizer=address");
    test.env("ASAN_OPTIONS", "detect_leaks=1");
    let intended = project::root().join("xtask/leaks.txt");
    test.env(
        "LSAN_OPTIONS",
        format!("suppressions={}:print_suppressions=0", intended.display()),
    );
    // Beside the others, which would be built again each time.
    test.env("CARGO_TARGET_DIR", project::root().join("target/sanitize"));
    run(test)
}
