//! Where the programs under test are: built into the same directory as the running one.

use std::path::{Path, PathBuf};

/// A program of this workspace: `leasekeeper` (the extension), `bootstrap` (the Rust example), `function` (the tests' own).
///
/// # Panics
/// It was not built; the message says how to.
pub fn built(name: &str) -> PathBuf {
    let this = std::env::current_exe().expect("a running program has a path");
    // Tests run from `deps/`, programs from the directory above it.
    let found = this.ancestors().skip(1).take(2).map(|folder| folder.join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{name} is not built: run `cargo build --workspace --bins` first"))
}

/// A file of the repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies in the repository").join(path)
}

/// The folder for `NODE_PATH` in which a Node function finds the package `leasekeeper`, as `/opt/nodejs/node_modules` is in the
/// layer. It is made beside the programs and leads to the sources.
///
/// # Panics
/// It cannot be made.
pub fn node_path() -> PathBuf {
    let folder = built("leasekeeper").with_file_name("node_modules");
    std::fs::create_dir_all(&folder).expect("the folder of built programs is ours");
    match std::os::unix::fs::symlink(repository("layer/nodejs/leasekeeper"), folder.join("leasekeeper")) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => panic!("{}: {error}", folder.display()),
        _ => folder,
    }
}

/// The folder for `PYTHONPATH` in which a Python function finds the package `leasekeeper`, as `/opt/python` is in the layer.
pub fn python_path() -> PathBuf {
    repository("layer/python")
}
