//! Has the linker put what starting a job needs side by side.

use std::env;

/// Functions in the order in which the linker shall put them: those that run when a job starts, which `cargo xtask
/// link-order` finds. The kernel reads 64 KiB around each function that is called first, and those of `ropewalk run` lay
/// all over 6 MiB. A name that is not there, as after a change of the compiler, does no harm.
const ORDER: &str = "link_order.txt";

fn main() {
    println!("cargo:rerun-if-changed={ORDER}");
    println!("cargo:rerun-if-env-changed=RUSTC_LINKER");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    // Only lld knows the option, which is what the compiler links with on this platform unless it is told otherwise.
    let told = env::var_os("RUSTC_LINKER").is_some()
        || env::var("CARGO_ENCODED_RUSTFLAGS").is_ok_and(|flags| flags.contains("link"));
    let x86_64_linux_gnu = is("CARGO_CFG_TARGET_ARCH", "x86_64")
        && is("CARGO_CFG_TARGET_OS", "linux")
        && is("CARGO_CFG_TARGET_ENV", "gnu");
    if told || !x86_64_linux_gnu || !is("PROFILE", "release") {
        return;
    }
    if let Ok(folder) = env::var("CARGO_MANIFEST_DIR") {
        println!(
            "cargo:rustc-link-arg-bin=ropewalk=-Wl,--symbol-ordering-file={folder}/{ORDER},--no-warn-symbol-ordering"
        );
    }
}
