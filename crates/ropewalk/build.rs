//! Has the linker put what starting a job needs side by side.

use std::{env, path::Path, process::Command};

/// Functions in the order in which the linker shall put them: those that run when a job starts, which `cargo xtask
/// link-order` finds. The kernel reads 64 KiB around each function that is called first, and those of `ropewalk run` lay
/// all over 6 MiB. A name that is not there, as after a change of the compiler, does no harm.
const ORDER: &str = "link_order.txt";

fn main() {
    println!("cargo:rerun-if-changed={ORDER}");
    println!("cargo:rerun-if-env-changed=RUSTC_LINKER");
    let folder = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    // The words to the linker have commas between them.
    if env::var("PROFILE").is_ok_and(|profile| profile == "release")
        && links_with_lld()
        && !folder.contains(',')
    {
        println!(
            "cargo:rustc-link-arg-bin=ropewalk=-Wl,--symbol-ordering-file={folder}/{ORDER},--no-warn-symbol-ordering"
        );
    }
}

/// Whether the compiler links with the lld that comes with it, as it does on one platform unless it is told otherwise. No
/// other linker knows the option. Compilers of distributions may come without.
fn links_with_lld() -> bool {
    const TARGET: &str = "x86_64-unknown-linux-gnu";
    let told = env::var_os("RUSTC_LINKER").is_some()
        || env::var("CARGO_ENCODED_RUSTFLAGS").is_ok_and(|flags| flags.contains("link"));
    if told || !env::var("TARGET").is_ok_and(|target| target == TARGET) {
        return false;
    }
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let Ok(output) = Command::new(rustc).args(["--print", "sysroot"]).output() else {
        return false;
    };
    let sysroot = String::from_utf8_lossy(&output.stdout);
    Path::new(sysroot.trim_end())
        .join(format!("lib/rustlib/{TARGET}/bin/gcc-ld/ld.lld"))
        .exists()
}
