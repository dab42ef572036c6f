//! What one resolver is asked about one name, both kinds of address at once, and what it has said to that.

use super::{Kind, Reply, query, reply};
use core::net::IpAddr;
use core::time::Duration;

/// The questions to one resolver, and its answers.
#[derive(Debug)]
pub struct Asking {
    name: String,
    /// What is not answered, each with the number of its question.
    open: Vec<(u16, Kind)>,
    /// What was found.
    pub addresses: Vec<(IpAddr, Duration)>,
    /// Why there may be more that was not.
    pub failure: Option<&'static str>,
}

/// What a message was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// An answer.
    Answer,
    /// One that did not fit: what is open is to be asked again over TCP.
    Truncated,
    /// No answer to what was asked.
    Stranger,
}

impl Asking {
    /// Nothing was asked yet.
    pub fn about(name: &str) -> Self {
        let open = vec![(0, Kind::A), (0, Kind::Aaaa)];
        Asking { name: name.to_owned(), open, addresses: Vec::new(), failure: None }
    }

    /// What is open as messages, each with a new number from `random`; none for what is no name of a host.
    ///
    /// # Errors
    /// Those of `random`.
    pub fn questions<E>(&mut self, mut random: impl FnMut() -> Result<u16, E>) -> Result<Vec<Vec<u8>>, E> {
        let mut messages = Vec::new();
        for (number, kind) in &mut self.open {
            *number = random()?;
            messages.extend(query(*number, &self.name, *kind));
        }
        Ok(messages)
    }

    /// Takes a message in.
    pub fn take(&mut self, message: &[u8]) -> Taken {
        let answered = self
            .open
            .iter()
            .enumerate()
            .find_map(|(at, (number, kind))| Some((at, reply(message, *number, &self.name, *kind)?)));
        let Some((at, reply)) = answered else { return Taken::Stranger };
        match reply {
            Reply::Truncated => return Taken::Truncated,
            Reply::Addresses(addresses) => self.addresses.extend(addresses),
            Reply::Failed(why) => self.failure = Some(why),
            Reply::None => {}
        }
        self.open.remove(at);
        Taken::Answer
    }

    /// Whether all is answered.
    pub fn is_over(&self) -> bool {
        self.open.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::dns::{Answer, answer};

    #[test]
    fn what_is_cut_off_is_asked_again_and_the_rest_is_not() {
        let mut asking = Asking::about("a.example");
        let mut number = 0;
        let mut random = || {
            number += 1;
            Ok::<u16, ()>(number)
        };
        let asked = asking.questions(&mut random).unwrap();
        let address = [IpAddr::from([192, 0, 2, 1])];
        let told = |query: &[u8]| answer(query, &Answer::Addresses(&address, Duration::from_secs(9)));
        let mut cut = answer(&asked[0], &Answer::NoData);
        cut[2] |= 2;
        assert_eq!(asking.take(&cut), Taken::Truncated);
        assert_eq!(asking.take(&told(&asked[1])), Taken::Answer);
        assert_eq!(asking.take(&told(&asked[1])), Taken::Stranger);
        let again = asking.questions(&mut random).unwrap();
        assert_eq!(again.len(), 1);
        assert_eq!(asking.take(&told(&asked[0])), Taken::Stranger, "it has another number now");
        assert_eq!(asking.take(&told(&again[0])), Taken::Answer);
        assert!(asking.is_over() && asking.failure.is_none());
        assert_eq!(asking.addresses, [(address[0], Duration::from_secs(9))]);
        assert_eq!(Asking::about("a..b").questions(random), Ok(Vec::new()));
    }
}
