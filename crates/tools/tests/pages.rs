//! From pages to text: what a page has to look like, hostile markup, and pages of the field.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "clippy knows no test helpers")]
#![allow(clippy::print_stdout, reason = "figures of the corpus, and what is skipped")]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use toolwright_tools::{Links, main_text, page_text};

fn text(html: &str) -> String {
    page_text(html, Some("https://a.example/dir/page"), Links::Shown)
}

// rule: sdk-tools 9.2/3
// case: field-reports 128
#[test]
fn blocks_stand_apart() {
    for (html, expected) in [
        ("<div>Hello</div><div>World</div>", "Hello\n\nWorld"),
        ("<article><header><h1>T</h1></header><p>x</article>", "# T\n\nx"),
        ("one<br>two<br/>three", "one\ntwo\nthree"),
        ("<p>a\n  b&nbsp;c</p> <p>d</p>", "a b c\n\nd"),
        ("<ul><li>a<li>b<ul><li>c</ul></ul><ol><li>x</li><li>y</li></ol>", "- a\n- b\n  - c\n\n1. x\n2. y"),
        ("<b>bo</b>ld <i>it</i>alic", "bold italic"),
        ("<pre>\nfn main() {\n    x();\n}\n</pre>after", "fn main() {\n    x();\n}\n\nafter"),
        ("&lt;p&gt; &amp; &copy; &copy2 &#x1F600; &notit; &nbsp;&eacute;", "<p> & © ©2 😀 ¬it; é"),
        ("a<script>x('<p>')</script><style>b{}</style><noscript>on</noscript><template><p>t</p></template>b", "ab"),
        ("x<svg><title>t</title><style>a</style><text>y</text></svg>z<svg/>w", "xzw"),
        ("<title>T</title>x<textarea>y</textarea>", "x"),
        ("<svg><g>unclosed<p>shown", "shown"),
        ("</p></div></td>x", "x"),
    ] {
        assert_eq!(text(html), expected, "{html}");
    }
}

// rule: sdk-tools 9.2/3
#[test]
fn a_link_is_followed_by_its_address() {
    for (html, expected) in [
        ("<a href='/x'>text</a>.", "text (https://a.example/x)."),
        ("<a href=x?a=1&amp;b=2><b>t</b>ext </a>after", "text (https://a.example/dir/x?a=1&b=2) after"),
        ("<a href='#there'>on this page</a>", "on this page (#there)"),
        ("<base href='https://b.example/c/'><a href=x>y</a> <a href='#z'>z</a>", "y (https://b.example/c/x) z (https://b.example/c/#z)"),
        ("<a href='javascript:x()'>does</a> <a>is none</a> <a href=''>empty</a>", "does is none empty"),
        ("<a href=mailto:a@b.example>mail</a>", "mail (mailto:a@b.example)"),
        ("<a href=x><img src=i alt='A picture'></a>", "A picture (https://a.example/dir/x)"),
        ("<a href=x><img src=i></a>", "(https://a.example/dir/x)"),
        ("<a href=x>one<a href=y>two", "one (https://a.example/dir/x)two (https://a.example/dir/y)"),
        ("<a href=x><h2>Title</h2><p>Text</p></a><p>next", "## Title\n\nText (https://a.example/dir/x)\n\nnext"),
    ] {
        assert_eq!(text(html), expected, "{html}");
    }
    assert_eq!(page_text("<a href=x>y</a>", None, Links::Hidden), "y");
    assert_eq!(page_text("<a href=x>y</a>", None, Links::Shown), "y (x)");
}

// case: field-reports 128
#[test]
fn tables_can_be_read() {
    for (html, expected) in [
        ("<table><tr><th>k<th>v<tr><td>a|b<td>2</table>", "k | v\na\\|b | 2"),
        ("<table><tr><td>a</td><td></td><td>c</td></tr></table>x", "a |  | c\n\nx"),
        ("<table><caption>All</caption><tr><td>1<td>2</table>", "All\n1 | 2"),
        ("<table><tr><td><p>one</p><p>two</p></td><td>side</td></tr></table>", "one\n\ntwo\n\nside"),
        ("<table><tr><td><table><tr><td>1<td>2<tr><td>3<td>4</table></td></tr></table>", "1 | 2\n3 | 4"),
        ("<table><tr><td><a href=x>l</a><td>2</table>", "l (https://a.example/dir/x) | 2"),
        ("<table><tr><td>open<td>ended", "open | ended"),
        ("<table>loose<tr><td>1<td>2</table>", "loose\n1 | 2"),
    ] {
        assert_eq!(text(html), expected, "{html}");
    }
}

/// Far beyond what it takes, and far below what anything but linear time would take.
const SOON: Duration = Duration::from_secs(20);

// case: field-reports 127
// case: field-reports 130
#[test]
fn hostile_markup_is_read_in_time() {
    let many = (0..200_000).fold(String::new(), |many, n| many + &format!("a{n} "));
    let spread = (0..20_000).fold(String::new(), |spread, n| spread + &format!("<p><b c={n}>x</p>"));
    for (what, html, holds) in [
        ("nested", "<div>".repeat(100_000) + "x", "x"),
        ("unclosed", "<script".repeat(50_000), ""),
        ("unclosed tags", "<script>".repeat(50_000), ""),
        ("after a script", "<script>1</script>".repeat(50_000) + "x", "x"),
        ("attributes", format!("<p {many}>x"), "x"),
        ("formatting", spread, "x"),
        ("tables", "<table><tr><td>".repeat(30_000) + "x", "x"),
        ("lists", "<ul><li>".repeat(50_000) + "x", "- x"),
        ("less than", "<".repeat(1_000_000), "<<<"),
        ("ampersands", "&".repeat(1_000_000), "&&&"),
        ("comments", "<!--".repeat(300_000), ""),
        ("ends", "<div>".repeat(50_000) + &"</span>".repeat(50_000) + "x", "x"),
        ("quotes", "<a href='".repeat(100_000), ""),
    ] {
        let began = Instant::now();
        let whole = text(&html);
        assert!(whole.contains(holds), "{what}: {}", whole.chars().take(50).collect::<String>());
        let _ = main_text(&html, None, Links::Shown);
        assert!(began.elapsed() < SOON, "{what} took {:?}", began.elapsed());
    }
}

fn pages() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures/html");
    let mut pages: Vec<PathBuf> = std::fs::read_dir(&folder).into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    pages.retain(|page| page.join("source.html").exists());
    pages.sort();
    if pages.is_empty() {
        println!("skipped: there are no pages beside this checkout");
    }
    pages
}

/// The address that the pages were expected under.
const ADDRESS: &str = "http://fakehost/test/page.html";

fn words(text: &str) -> HashMap<String, usize> {
    let mut words = HashMap::new();
    for word in text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
        *words.entry(word.to_lowercase()).or_default() += 1;
    }
    words
}

/// How many words two texts share, and how many each has.
fn shared(one: &str, other: &str) -> (usize, usize, usize) {
    let (one, other) = (words(one), words(other));
    let both = one.iter().map(|(word, count)| *count.min(other.get(word).unwrap_or(&0))).sum();
    (both, one.values().sum(), other.values().sum())
}

/// The addresses of links, read in a way of its own: from the quotes of each `href`.
fn links(html: &str) -> Vec<String> {
    let base = url::Url::parse(ADDRESS).unwrap();
    let tags = html.split("<a ").skip(1).filter_map(|tag| tag.split('>').next());
    let hrefs = tags.filter_map(|tag| tag.split("href=\"").nth(1)?.split('"').next());
    hrefs.map(|href| href.replace("&amp;", "&")).map(|href| base.join(&href).map_or(href, String::from)).collect()
}

#[test]
fn pages_of_the_field_are_read() {
    let (mut scores, mut linked) = (Vec::new(), 0);
    for page in pages() {
        let name = page.file_name().unwrap().to_string_lossy().into_owned();
        let source = std::fs::read_to_string(page.join("source.html")).unwrap();
        let expected = std::fs::read_to_string(page.join("expected.html")).unwrap();
        let wanted = page_text(&expected, Some(ADDRESS), Links::Hidden);

        let began = Instant::now();
        let whole = page_text(&source, Some(ADDRESS), Links::Shown);
        let whole_took = began.elapsed();
        let began = Instant::now();
        let main = main_text(&source, Some(ADDRESS), Links::Hidden).unwrap_or_default();
        let main_took = began.elapsed();
        println!("{name}: whole {whole_took:.0?}, main {main_took:.0?}");
        // Without optimisation, and with other tests beside it, it takes many times as long.
        let limit = Duration::from_millis(if cfg!(debug_assertions) { 2_000 } else { 200 });
        assert!(whole_took < limit && main_took < limit, "{name}: {whole_took:?}, {main_took:?}");

        let (both, _, all) = shared(&page_text(&source, Some(ADDRESS), Links::Hidden), &wanted);
        assert!(both * 100 >= all * 99, "{name}: {both} of {all} words");
        for link in links(&expected) {
            linked += 1;
            let here = link.strip_prefix(ADDRESS).filter(|place| place.starts_with('#')).unwrap_or(&link);
            assert!(whole.contains(&format!("({here})")), "{name} lost {link}");
        }
        let (both, found, all) = shared(&main, &wanted);
        let score = if found + all == 0 { 1.0 } else { 2.0 * both as f64 / (found + all) as f64 };
        println!("{name}: F1 {score:.4}");
        scores.push(score);
    }
    if scores.is_empty() {
        return;
    }
    let mean = scores.iter().sum::<f64>() / scores.len() as f64;
    println!("{} pages, mean F1 {mean:.4}, {linked} links", scores.len());
    assert_eq!(scores.len(), 27);
    assert!(mean >= 0.98, "{mean}");
}
