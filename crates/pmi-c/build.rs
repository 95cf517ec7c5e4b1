//! Gives the library the name by which programs that were linked with Slurm's look for it.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libpmi.so.0");
    println!("cargo:rerun-if-changed=build.rs");
}
