//! Has the linker make an executable that starts quickly and of which little is in memory: `docs/decisions/0010`.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Functions in the order in which the linker shall put them: those that run when a job starts, which `cargo xtask
/// link-order` finds. The kernel reads 64 KiB around each function that is called first, and those of `ropewalk run` lay
/// all over 6 MiB. A name that is not there, as after a change of the compiler, does no harm.
const ORDER: &str = "link_order.txt";

fn main() {
    println!("cargo:rerun-if-changed={ORDER}");
    println!("cargo:rerun-if-env-changed=RUSTC_LINKER");
    if env::var("PROFILE").is_ok_and(|profile| profile == "release") && links_with_lld() {
        order_functions();
        if glibc_is_at_least(2, 36) {
            // Addresses that the loader has to relocate take 6 KiB instead of 140, all of which it reads.
            println!("cargo:rustc-link-arg-bin=ropewalk=-Wl,-z,pack-relative-relocs");
        }
        include_unwinder();
    }
}

fn order_functions() {
    let folder = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    // The words to the linker have commas between them.
    if !folder.contains(',') {
        println!(
            "cargo:rustc-link-arg-bin=ropewalk=-Wl,--symbol-ordering-file={folder}/{ORDER},--no-warn-symbol-ordering"
        );
    }
}

/// Takes the unwinder into the executable where the C compiler has it, instead of a library that each process would load: what
/// the linker finds by the library's name is a script that names the archives.
fn include_unwinder() {
    let archive = |name: &str| {
        let output = Command::new("cc")
            .arg(format!("-print-file-name={name}"))
            .output()
            .ok()?;
        let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim_end());
        // One that it does not have it calls by its name alone.
        path.is_absolute().then_some(path)
    };
    let (Some(unwinder), Some(rest), Some(out)) = (
        archive("libgcc_eh.a"),
        archive("libgcc.a"),
        env::var_os("OUT_DIR"),
    ) else {
        return;
    };
    for archive in [&unwinder, &rest] {
        // Another version of the compiler has others.
        println!("cargo:rerun-if-changed={}", archive.display());
    }
    let script = format!("GROUP ( \"{}\" \"{}\" )\n", unwinder.display(), rest.display());
    if fs::write(Path::new(&out).join("libgcc_s.so"), script).is_ok() {
        println!(
            "cargo:rustc-link-arg-bin=ropewalk=-L{}",
            Path::new(&out).display()
        );
    }
}

/// Whether the C library of this machine, for which the executable is made, is of this version or a later one.
fn glibc_is_at_least(major: u32, minor: u32) -> bool {
    let Ok(output) = Command::new("getconf").arg("GNU_LIBC_VERSION").output() else {
        return false;
    };
    let said = String::from_utf8_lossy(&output.stdout);
    let version = said.trim().strip_prefix("glibc ").unwrap_or_default();
    let mut numbers = version.split('.').map_while(|number| number.parse().ok());
    (numbers.next(), numbers.next()) >= (Some(major), Some(minor))
}

/// Whether the compiler links with the lld that comes with it, as it does on one platform unless it is told otherwise. No
/// other linker knows the option. Compilers of distributions may come without.
fn links_with_lld() -> bool {
    const TARGET: &str = "x86_64-unknown-linux-gnu";
    let told = env::var_os("RUSTC_LINKER").is_some()
        || env::var("CARGO_ENCODED_RUSTFLAGS").is_ok_and(|flags| flags.contains("link"));
    let is_native = ["TARGET", "HOST"].map(|name| env::var(name).is_ok_and(|value| value == TARGET));
    if told || is_native.contains(&false) {
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
