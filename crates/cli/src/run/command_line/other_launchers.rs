//! Advice on options that are not there: words of other launchers, and words that are spelled wrongly.

use super::options::{Row, find, rows};

/// A clause that says which option `name`, without its dashes, may stand for; `value` is what follows a `=`.
pub(super) fn advice(name: &str, value: Option<&str>) -> Option<String> {
    let known = WORDS.iter().find(|(others, _)| others.contains(&name));
    if let Some((_, ours)) = known {
        return Some((*ours).to_owned());
    }
    let letters = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
    let number = &name[letters.len()..];
    if !number.is_empty()
        && value.is_none()
        && let Some((row, spelling)) = find(letters)
        && row.value().is_some_and(|value| value.starts_with('N'))
    {
        return Some(format!("did you mean {spelling} {number}?"));
    }
    nearest(name).map(|known| format!("did you mean {known}?"))
}

/// The option, with its dashes, that differs from `name` in at most two letters, and in less than half of them.
fn nearest(name: &str) -> Option<&'static str> {
    let names = rows().filter(|row| row.is_option()).flat_map(Row::names);
    let distances = names.map(|known| (distance(known.trim_start_matches('-'), name), known));
    let (distance, known) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= 2 && 2 * distance < name.chars().count()).then_some(known)
}

/// How many letters are to be put in, left out or changed to make one word of the other (Levenshtein 1966).
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.chars().count()).collect();
    for (index, letter) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], index + 1);
        for (column, against) in (1..).zip(other.chars()) {
            let changed = diagonal + usize::from(letter != against);
            diagonal = row[column];
            row[column] = changed.min(row[column] + 1).min(row[column - 1] + 1);
        }
    }
    row[row.len() - 1]
}

/// Options of srun, torchrun and mpirun that mean something else here or nothing, and the options to use for them.
const WORDS: &[(&[&str], &str)] = &[
    (&["ntasks"], "use -n N"),
    (
        &["ntasks-per-node", "nproc-per-node", "nproc_per_node"],
        "use -ppn N",
    ),
    (&["ntasks-per-socket"], "use --npersocket N"),
    (
        &["c", "cpus-per-task", "cpus-per-rank", "cpus-per-proc"],
        "use -n N for the number of ranks, and -bind-to core:C for C cores for each",
    ),
    (
        &["nodes", "nnodes"],
        "use -hosts A,B to name hosts; those of an allocation are found",
    ),
    (&["w", "nodelist"], "use -hosts A,B"),
    (&["exclude"], "use -hosts A,B with the hosts to be used"),
    (&["nolocal"], "use -skip-launch-node"),
    (&["mpi"], "use --pmi"),
    (&["cpu-bind", "cpu_bind"], "use -bind-to"),
    (
        &["cpu-set", "cpu-list", "rankfile", "rf"],
        "use -bind-to user:LIST, and -rankmap for the hosts of ranks",
    ),
    (&["bynode"], "use -map-by node"),
    (&["byslot"], "use -map-by slot"),
    (&["gpus-per-task"], "use -gpus-per-proc N"),
    (&["o", "output"], "use -outfile-pattern FILE, and -l for labels"),
    (&["error"], "use -errfile-pattern FILE"),
    (&["i", "input"], "redirect the standard input: < FILE"),
    (&["t", "time"], "use --timeout TIME"),
    (&["multi-prog", "app"], "use -configfile FILE"),
    (
        &["display"],
        "use --display-map for the hosts of ranks, and --report-bindings",
    ),
    (
        &["max-restarts", "max_restarts"],
        "use --on-failure restart=N for the job, or respawn=N for each rank",
    ),
    (&["with-ft", "enable-recovery"], "use --on-failure continue"),
    (
        &["master-addr", "master_addr", "master-port", "master_port"],
        "use --env MASTER_ADDR=HOST or --env MASTER_PORT=N if those that ranks get do not suit",
    ),
    (
        &[
            "standalone",
            "rdzv-backend",
            "rdzv_backend",
            "rdzv-endpoint",
            "rdzv_endpoint",
            "rdzv-id",
            "rdzv_id",
            "node-rank",
            "node_rank",
        ],
        "leave it out, and start the job once for all hosts (-hosts A,B): ranks find each other",
    ),
    (&["m", "module"], "use `python -m MODULE` as the program"),
    (
        &["u", "unbuffered"],
        "use --tty, by which programs write each line at once",
    ),
    (&["merge-stderr-to-stdout"], "redirect the output: 2>&1"),
    (
        &["K", "kill-on-bad-exit"],
        "leave it out: a rank that fails ends the others, unless --on-failure says something else",
    ),
    (
        &[
            "A",
            "account",
            "J",
            "job-name",
            "p",
            "partition",
            "exclusive",
            "gres",
            "mem",
            "qos",
        ],
        "give it to salloc or sbatch, whose allocation is found",
    ),
    (
        &["nooversubscribe"],
        "leave it out: there are as many ranks as -n and -ppn say",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Words of other launchers are no options here, and advice on them names options that there are.
    #[test]
    fn advice_names_options() {
        for (words, ours) in WORDS.iter().copied() {
            for word in words.iter().copied() {
                assert!(find(word).is_none(), "{word} is an option");
                assert_eq!(advice(word, Some("1")).as_deref(), Some(ours));
            }
            let words = ours.split_whitespace().filter(|word| *word != "-m");
            let options = words.filter_map(|word| word.strip_prefix('-'));
            for option in options {
                let option = option.trim_start_matches('-').trim_end_matches([',', ';', ')']);
                assert!(find(option).is_some(), "{option} in {ours}");
            }
        }
    }

    /// A word that is nearly an option is taken for it, with the dashes that the help has; other words are not.
    #[test]
    fn advice_mends_spelling() {
        for (typed, meant) in [
            ("ppm", "-ppn"),
            ("n4", "-n 4"),
            ("np4", "-np 4"),
            ("bindto", "-bind-to"),
            ("mapby", "-map-by"),
            ("host-file", "-hostfile"),
            ("on-failur", "--on-failure"),
            ("prepend-ranks", "-prepend-rank"),
            ("rank-map", "-rankmap"),
            ("outputfrom", "-output-from"),
            ("detekt", "--detect"),
            ("lable", "--label"),
        ] {
            let expected = format!("did you mean {meant}?");
            assert_eq!(advice(typed, None), Some(expected), "{typed}");
        }
        for typed in ["", "k", "9", "l4", "xyzzy", "-", "=", " ", "\u{20ac}"] {
            assert_eq!(advice(typed, None), None, "{typed:?}");
        }
    }
}
