//! Addresses: read strictly, and held to those that are allowed.

use lettre::message::Mailbox;
use lettre::{Address, message::Mailboxes};
use toolwright_tool::ToolError;
use url::Host;

use crate::integrations::option::OptionError;
use crate::integrations::shape::in_line;

/// Who gets an email.
pub(super) struct People {
    pub(super) to: Vec<Mailbox>,
    pub(super) cc: Vec<Mailbox>,
    pub(super) bcc: Vec<Mailbox>,
}

impl People {
    pub(super) fn all(&self) -> impl Iterator<Item = &Mailbox> {
        self.to.iter().chain(&self.cc).chain(&self.bcc)
    }
}

/// Who may get one.
pub(super) struct Recipients {
    allowed: Option<Vec<Pattern>>,
    most: usize,
}

struct Pattern {
    /// None for any.
    user: Option<String>,
    domain: String,
    /// Whether names below the domain are meant, and not the domain.
    below: bool,
}

impl Pattern {
    fn new(text: &str) -> Result<Self, OptionError> {
        let refused = || {
            let shown = in_line(text, 80);
            OptionError::new(
                "allowed_recipients",
                format!("`{shown}` is no pattern such as `kim@acme.example`, `*@acme.example` or `*@*.acme.example`"),
            )
        };
        let (user, domain) = text.trim().rsplit_once('@').ok_or_else(refused)?;
        let (below, domain) = domain.strip_prefix("*.").map_or((false, domain), |domain| (true, domain));
        let domain = ascii_domain(domain).ok_or_else(refused)?;
        let user = match user {
            "*" => None,
            user if is_user(user) && !user.contains('*') => Some(user.to_ascii_lowercase()),
            _ => return Err(refused()),
        };
        Ok(Self { user, domain, below })
    }

    fn fits(&self, address: &Address) -> bool {
        let domain = address.domain().to_ascii_lowercase();
        let of_domain = if self.below {
            domain.strip_suffix(&self.domain).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
        } else {
            domain == self.domain
        };
        of_domain && self.user.as_ref().is_none_or(|user| address.user().eq_ignore_ascii_case(user))
    }
}

impl Recipients {
    pub(super) fn new(allowed: Option<&[String]>, most: usize) -> Result<Self, OptionError> {
        if most == 0 {
            return Err(OptionError::new("max_recipients", "it is zero"));
        }
        let patterns = |allowed: &[String]| allowed.iter().map(|pattern| Pattern::new(pattern)).collect::<Result<Vec<_>, _>>();
        Ok(Self { allowed: allowed.map(patterns).transpose()?, most })
    }

    /// Reads the addresses and checks that each may be written to. Whoever is named twice gets it once.
    pub(super) fn checked(&self, to: &[String], cc: Option<&[String]>, bcc: Option<&[String]>) -> Result<People, ToolError> {
        let mut seen: Vec<String> = Vec::new();
        let mut list = |name: &str, texts: &[String]| -> Result<Vec<Mailbox>, ToolError> {
            let mut mailboxes = Vec::with_capacity(texts.len().min(self.most));
            for (index, text) in texts.iter().enumerate() {
                let path = format!("{name}.{index}");
                let mailbox = mailbox(text).map_err(|problem| ToolError::invalid(&*path, problem))?;
                if self.allowed.as_ref().is_some_and(|allowed| !allowed.iter().any(|pattern| pattern.fits(&mailbox.email))) {
                    let message = format!("{} is not among the addresses that may be written to", mailbox.email);
                    return Err(ToolError::invalid(path, message));
                }
                let address = mailbox.email.to_string().to_ascii_lowercase();
                if seen.contains(&address) {
                    continue;
                }
                if seen.len() >= self.most {
                    return Err(ToolError::invalid(path, format!("is one address too many: an email goes to at most {}", self.most)));
                }
                seen.push(address);
                mailboxes.push(mailbox);
            }
            Ok(mailboxes)
        };
        let people = People { to: list("to", to)?, cc: list("cc", cc.unwrap_or_default())?, bcc: list("bcc", bcc.unwrap_or_default())? };
        if people.to.is_empty() {
            return Err(ToolError::invalid("to", "names who gets the email, so it can't be empty"));
        }
        Ok(people)
    }
}

/// One address, with or without a name before it.
pub(super) fn mailbox(text: &str) -> Result<Mailbox, String> {
    let shown = || in_line(text, 80);
    if text.chars().any(char::is_control) {
        return Err(format!("`{}` holds a line break or another control character", shown()));
    }
    let (name, address) = match text.trim().strip_suffix('>').and_then(|rest| rest.rsplit_once('<')) {
        Some((name, address)) => (name.trim().trim_matches('"').trim(), address),
        None => ("", text),
    };
    let no_address = || format!("`{}` is no email address such as `kim@acme.example`", shown());
    let (user, domain) = address.trim().rsplit_once('@').ok_or_else(no_address)?;
    if !is_user(user) || name.contains(['<', '>', '"', '\\', '@']) || name.chars().count() > 100 {
        return Err(no_address());
    }
    let domain = ascii_domain(domain).ok_or_else(no_address)?;
    let address = Address::new(user, domain).map_err(|_| no_address())?;
    Ok(Mailbox::new(Some(name.to_owned()).filter(|name| !name.is_empty()), address))
}

/// What stands before the `@`: no quotes, and none of the signs by which some servers pass a message on to elsewhere.
fn is_user(user: &str) -> bool {
    let plain = user.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".+-_=~'&#$*?^/{}".contains(&byte));
    plain && !user.is_empty() && user.len() <= 64 && !user.starts_with('.') && !user.ends_with('.') && !user.contains("..")
}

/// A domain as it goes over the wire: a name with a dot in it, no address.
fn ascii_domain(domain: &str) -> Option<String> {
    match Host::parse(domain).ok()? {
        Host::Domain(domain) => {
            let plain = domain.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
            (plain && domain.contains('.') && domain.len() <= 253 && !domain.ends_with('.')).then_some(domain)
        }
        _ => None,
    }
}

/// The addresses of a header.
pub(super) fn mailboxes(list: &[Mailbox]) -> Mailboxes {
    list.iter().cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_strictly() {
        let read = |text: &str| mailbox(text).map(|mailbox| (mailbox.name.unwrap_or_default(), mailbox.email.to_string()));
        let ok = |name: &str, address: &str| Ok((name.to_owned(), address.to_owned()));
        assert_eq!(read(" kim@acme.example "), ok("", "kim@acme.example"));
        assert_eq!(read("Kim Ro <kim.ro+x@Acme.example>"), ok("Kim Ro", "kim.ro+x@acme.example"));
        assert_eq!(read("\"Ro, Kim\" <kim@acme.example>"), ok("Ro, Kim", "kim@acme.example"));
        assert_eq!(read("kim@grüße.example"), ok("", "kim@xn--gre-6ka8l.example"));
        for wrong in [
            "",
            "kim",
            "@acme.example",
            "kim@",
            "kim@acme",
            "kim@127.0.0.1",
            "kim@[127.0.0.1]",
            "kim@acme.example, eve@evil.example",
            "kim@acme.example; eve@evil.example",
            "kim@acme.example>,<eve@evil.example",
            "<kim@acme.example> <eve@evil.example>",
            "eve@evil.example <kim@acme.example>",
            "\"eve@evil.example\"@acme.example",
            "eve%evil.example@acme.example",
            "evil.example!eve@acme.example",
            "kim@acme.example\r\nBcc: eve@evil.example",
            "Kim\r\nBcc: eve@evil.example\r\nX: <kim@acme.example>",
            "kim@acme.example\0",
            ".kim@acme.example",
            "k..m@acme.example",
            "kim@acme.example@evil.example",
            "grüße@acme.example",
        ] {
            assert!(mailbox(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn only_allowed_addresses_are_written_to() {
        let allowed: Vec<String> = ["*@acme.example", "Kim@partner.example", "*@*.corp.example"].map(str::to_owned).to_vec();
        let recipients = Recipients::new(Some(&allowed), 3).unwrap();
        let may = |text: &str| recipients.checked(&[text.to_owned()], None, None).is_ok();
        for yes in ["a@acme.example", "A@ACME.example", "kim@partner.example", "x@a.corp.example", "x@a.b.corp.example"] {
            assert!(may(yes), "{yes}");
        }
        for no in [
            "a@evil.example",
            "a@x.acme.example",
            "a@evilacme.example",
            "kim2@partner.example",
            "x@corp.example",
            "x@evilcorp.example",
            "x@acme.example.evil.example",
        ] {
            assert!(!may(no), "{no}");
        }
        let list = |addresses: &[&str]| addresses.iter().map(|address| (*address).to_owned()).collect::<Vec<_>>();
        let error = recipients.checked(&list(&["a@acme.example"]), None, Some(&list(&["eve@evil.example"]))).err().unwrap();
        assert_eq!(error.to_failure("t").issues[0].path, "bcc.0");
        assert_eq!(error.message(), "eve@evil.example is not among the addresses that may be written to");
        let four = list(&["a@acme.example", "b@acme.example", "A@acme.example", "c@acme.example", "d@acme.example"]);
        assert_eq!(recipients.checked(&four, None, None).err().unwrap().to_failure("t").issues[0].path, "to.4");
        assert!(recipients.checked(&[], None, None).is_err());
        for wrong in ["acme.example", "*", "*@*", "@acme.example", "a*@acme.example", "*@acme", "*@*.", "*@a*.example"] {
            assert!(Recipients::new(Some(&[wrong.to_owned()]), 3).is_err(), "{wrong}");
        }
        assert!(Recipients::new(Some(&[]), 3).unwrap().checked(&four, None, None).is_err(), "an empty list allows nobody");
        assert!(Recipients::new(None, 0).is_err());
    }
}
