//! The names that a Rust file uses, read from its tokens, so that comments and strings do not count.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A path as it is written, its `use` groups multiplied out: `std::{env, fs}` is `std::env` and `std::fs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathUse {
    /// The line of its last name.
    pub(crate) line: usize,
    /// Its names.
    pub(crate) names: Vec<String>,
}

/// Every path in the tokens, in order; inside items under `#[cfg(test)]` only if `tests` says so.
pub(crate) fn paths(tokens: TokenStream, tests: bool) -> Vec<PathUse> {
    let mut found = Vec::new();
    collect(tokens, &[], tests, &mut found);
    found
}

fn collect(tokens: TokenStream, prefix: &[String], tests: bool, found: &mut Vec<PathUse>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        if !tests && is_cfg_test(&tokens[at..]) {
            at += item_length(&tokens[at..]);
            continue;
        }
        match &tokens[at] {
            TokenTree::Ident(first) => {
                let mut names = prefix.to_vec();
                names.push(first.to_string());
                let mut line = first.span().start().line;
                at += 1;
                while is_separator(&tokens[at..]) {
                    match tokens.get(at + 2) {
                        Some(TokenTree::Ident(next)) => {
                            names.push(next.to_string());
                            line = next.span().start().line;
                            at += 3;
                        }
                        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                            collect(group.stream(), &names, tests, found);
                            at += 3;
                        }
                        // A turbofish or a glob.
                        _ => at += 2,
                    }
                }
                found.push(PathUse { line, names });
            }
            TokenTree::Group(group) => {
                collect(group.stream(), &[], tests, found);
                at += 1;
            }
            _ => at += 1,
        }
    }
}

fn is_punctuation(token: Option<&TokenTree>, character: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punctuation)) if punctuation.as_char() == character)
}

fn is_separator(tokens: &[TokenTree]) -> bool {
    is_punctuation(tokens.first(), ':') && is_punctuation(tokens.get(1), ':')
}

fn is_cfg_test(tokens: &[TokenTree]) -> bool {
    is_punctuation(tokens.first(), '#')
        && matches!(tokens.get(1), Some(TokenTree::Group(group)) if group.to_string().replace(' ', "") == "[cfg(test)]")
}

/// How many tokens an item with its attributes takes: to its first block in braces or semicolon.
fn item_length(tokens: &[TokenTree]) -> usize {
    let ends = |token: &TokenTree| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        token => is_punctuation(Some(token), ';'),
    };
    tokens.iter().position(ends).map_or(tokens.len(), |last| last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(source: &str, tests: bool) -> Vec<String> {
        let found = paths(source.parse().unwrap(), tests);
        found.iter().map(|path| path.names.join("::")).collect()
    }

    /// Groups are multiplied out at any depth, and calls and macros are looked into.
    #[test]
    fn multiplies_groups_out() {
        let found = names(
            "use std::{env, net::{TcpStream, *}}; fn f() { vec![a::b(Vec::<c::D>::new())] }",
            true,
        );
        for expected in ["std::env", "std::net::TcpStream", "std::net", "a::b", "c::D"] {
            assert!(
                found.contains(&expected.to_owned()),
                "{expected} is not in {found:?}"
            );
        }
    }

    /// Comments and strings name nothing, and test modules count only when asked for.
    #[test]
    fn leaves_comments_strings_and_tests_out() {
        let source =
            "/// std::fs\nfn f() { \"std::env\" } #[cfg(test)] mod tests { use std::net; } fn g() { h::i }";
        let found = names(source, false);
        assert!(found.contains(&"h::i".to_owned()), "{found:?}");
        assert!(!found.iter().any(|name| name.starts_with("std")), "{found:?}");
        assert!(names(source, true).contains(&"std::net".to_owned()));
    }

    /// The line is that of the name itself, also inside a group.
    #[test]
    fn knows_the_line() {
        let found = paths("use std::{\n    env,\n};".parse().unwrap(), true);
        let env = found.iter().find(|path| path.names == ["std", "env"]);
        assert_eq!(env.map(|path| path.line), Some(2));
    }
}
