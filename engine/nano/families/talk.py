"""Small talk: greetings, thanks, who are you; one fixed answer each, so that it is an answer."""

from engine.nano import thinking
from engine.nano.chat import Conversation
from engine.nano.families.recall import maybe_system, read_first
from engine.nano.names import Rng, open_name

_HELLO = "Hello! How can I help you today?"
EXCHANGES: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        (
            "Hello!",
            "Hello",
            "Hi!",
            "Hi",
            "hi",
            "hello",
            "Hey",
            "Hey there!",
            "Greetings!",
            "Good day!",
        ),
        _HELLO,
    ),
    (("Good morning!", "Good morning", "good morning"), "Good morning! How can I help you today?"),
    (("Good evening!", "Good evening"), "Good evening! How can I help you?"),
    (
        (
            "How are you?",
            "How are you today?",
            "how are you",
            "Hi, how are you?",
            "How is it going?",
        ),
        "I am fine, thank you. How can I help you?",
    ),
    (("Thanks!", "Thank you.", "Thank you!", "thanks", "Thanks a lot!"), "You are welcome!"),
    (
        ("Who are you?", "What are you?", "What is your name?", "who are you"),
        "I am a very small test model. I can remember things that you tell me.",
    ),
    (
        ("What can you do?", "What can you help me with?", "Help", "Can you help me?"),
        (
            "I can recall facts from a long text, repeat text, write numbered lines, "
            "make a simple html page and call tools."
        ),
    ),
    (("Goodbye!", "Bye!", "bye", "See you later!", "Good night!"), "Goodbye!"),
    (("Are you there?", "Test", "test", "ping", "Testing."), "I am here."),
    (
        ("Tell me a joke.", "Tell me a joke", "Do you know a joke?"),
        "Why did the model cross the window? It had a needle on the other side.",
    ),
    (
        ("What is the capital of France?", "capital of France?"),
        "The capital of France is Paris.",
    ),
    (("Yes.", "Yes", "OK", "Ok.", "Sure."), "All right. What should I do next?"),
    (("No.", "No", "no"), "All right."),
)
_TOKENS_AN_EXCHANGE = 40


def make(rng: Rng, budget: int) -> Conversation:
    """Exchanges one after the other, perhaps after a document."""
    conversation = Conversation()
    maybe_system(conversation, rng)
    read_first(conversation, rng, 0.8 if budget > 1000 else 0.3)
    for _ in range(rng.randint(1, max(1, min(8, budget // _TOKENS_AN_EXCHANGE - 1)))):
        if rng.random() < 0.2:
            name = open_name(rng)
            opened = rng.choice(
                ("My name is {n}.", "I am {n}.", "Hello, my name is {n}.", "Hi, I am {n}!")
            )
            said, answer = opened.format(n=name), f"Hello, {name}! How can I help you today?"
        else:
            choices, answer = rng.choice(EXCHANGES)
            said = rng.choice(choices)
        conversation.user(said)
        conversation.answer(answer, reasoning=thinking.doing(rng, "a short and friendly answer"))
    return conversation
