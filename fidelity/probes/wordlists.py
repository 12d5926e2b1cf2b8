"""Word lists of the filler and of the needles: plain English, no list of any model's training."""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _phrases(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))


PEOPLE = _words(
    "clerk driver foreman inspector gardener nurse engineer librarian captain carpenter"
    " teacher porter mechanic cook surveyor watchman tailor plumber painter baker"
)
THINGS = _words(
    "door staircase engine window bridge fence clock ladder cable roof pump gate boiler crane"
    " lamp map cart bench chimney scale"
)
QUALITIES = _words(
    "small heavy damp empty quiet late new broken clean narrow dusty crowded cold steep plain"
    " rusty long bright dry loose"
)
CITIES = _words(
    "Bergen Antwerp Trieste Aberdeen Gdansk Marseille Valencia Rotterdam Riga Split Cork"
    " Genoa Malaga Turku Izmir Bremen Ghent Tallinn Nantes Dover"
)
DAYS = _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
GOODS = _phrases(
    "pears, bricks, lanterns, carpets, barrels of oil, sacks of flour, copper pipes,"
    " bicycles, umbrellas, oranges, wool blankets, glass bottles, garden chairs, notebooks,"
    " fishing nets, clay tiles, roof beams, spare tyres, tea chests, paint tins"
)
SITES = _phrases(
    "north warehouse, old mill, town library, post office, railway station, fish market,"
    " ferry terminal, customs house, city museum, school yard, bus depot, grain store, paper"
    " mill, boat shed, water tower, court house, weather station, print shop, power plant,"
    " bakery"
)
ACTIONS = _words(
    "checked repaired moved painted counted cleaned weighed measured photographed sold"
    " ordered returned borrowed inspected labelled unpacked stacked collected delivered"
)
EVENTS = _words("replaced closed opened tested reported marked")
PAD_WORDS = _words(
    "the a of to in and is it on for at you with not or as but that was be have are this time"
)
COLOURS = _words(
    "amber crimson silver indigo ivory scarlet golden turquoise violet bronze emerald copper"
    " grey purple black orange brown white pink blue"
)
PLACES = _words(
    "lighthouse windmill cathedral orchard harbour tunnel observatory vineyard castle"
    " fountain aquarium theatre monastery stadium greenhouse quarry hospital airport palace"
    " lagoon"
)
