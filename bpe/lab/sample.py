"""nothing -> SAMPLE: the same short paragraph in many languages, and code, numbers and emoji.

Written for this project, so that what a text costs can be compared between languages: each entry of
kind "language" says the same as the others. Blind spot: one paragraph is no corpus; the ratios are
a first look.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sample:
    """A text with its language (or what it is), its script and whether spaces part its words."""

    name: str
    script: str
    text: str
    kind: str = "language"
    has_spaces: bool = True


SAMPLE = (
    Sample("English", "Latin", (
        "Good morning! My name is Anna and I live in a small house by the sea. Every day I "
        "read a book and drink tea with my friends."
    )),
    Sample("German", "Latin", (
        "Guten Morgen! Ich heiße Anna und wohne in einem kleinen Haus am Meer. Jeden Tag "
        "lese ich ein Buch und trinke Tee mit meinen Freunden."
    )),
    Sample("French", "Latin", (
        "Bonjour ! Je m'appelle Anna et j'habite une petite maison au bord de la mer. "
        "Chaque jour, je lis un livre et je bois du thé avec mes amis."
    )),
    Sample("Spanish", "Latin", (
        "¡Buenos días! Me llamo Anna y vivo en una casa pequeña junto al mar. Cada día leo "
        "un libro y tomo té con mis amigos."
    )),
    Sample("Portuguese", "Latin", (
        "Bom dia! Meu nome é Anna e moro numa casa pequena à beira do mar. Todos os dias "
        "leio um livro e tomo chá com meus amigos."
    )),
    Sample("Italian", "Latin", (
        "Buongiorno! Mi chiamo Anna e vivo in una piccola casa vicino al mare. Ogni giorno "
        "leggo un libro e bevo il tè con i miei amici."
    )),
    Sample("Dutch", "Latin", (
        "Goedemorgen! Ik heet Anna en ik woon in een klein huis aan zee. Elke dag lees ik "
        "een boek en drink ik thee met mijn vrienden."
    )),
    Sample("Swedish", "Latin", (
        "God morgon! Jag heter Anna och bor i ett litet hus vid havet. Varje dag läser jag "
        "en bok och dricker te med mina vänner."
    )),
    Sample("Polish", "Latin", (
        "Dzień dobry! Nazywam się Anna i mieszkam w małym domu nad morzem. Codziennie "
        "czytam książkę i piję herbatę z przyjaciółmi."
    )),
    Sample("Czech", "Latin", (
        "Dobré ráno! Jmenuji se Anna a bydlím v malém domě u moře. Každý den čtu knihu a "
        "piju čaj se svými přáteli."
    )),
    Sample("Finnish", "Latin", (
        "Hyvää huomenta! Nimeni on Anna ja asun pienessä talossa meren rannalla. Joka päivä "
        "luen kirjaa ja juon teetä ystävieni kanssa."
    )),
    Sample("Hungarian", "Latin", (
        "Jó reggelt! Annának hívnak, és egy kis házban lakom a tenger mellett. Minden nap "
        "könyvet olvasok és teát iszom a barátaimmal."
    )),
    Sample("Turkish", "Latin", (
        "Günaydın! Benim adım Anna ve deniz kenarında küçük bir evde yaşıyorum. Her gün "
        "kitap okuyorum ve arkadaşlarımla çay içiyorum."
    )),
    Sample("Vietnamese", "Latin", (
        "Chào buổi sáng! Tên tôi là Anna và tôi sống trong một ngôi nhà nhỏ bên bờ biển. "
        "Mỗi ngày tôi đọc sách và uống trà với bạn bè."
    )),
    Sample("Indonesian", "Latin", (
        "Selamat pagi! Nama saya Anna dan saya tinggal di rumah kecil di tepi laut. Setiap "
        "hari saya membaca buku dan minum teh bersama teman-teman saya."
    )),
    Sample("Swahili", "Latin", (
        "Habari za asubuhi! Jina langu ni Anna na ninaishi katika nyumba ndogo kando ya "
        "bahari. Kila siku ninasoma kitabu na kunywa chai na marafiki zangu."
    )),
    Sample("Russian", "Cyrillic", (
        "Доброе утро! Меня зовут Анна, и я живу в маленьком доме у моря. Каждый день я "
        "читаю книгу и пью чай с друзьями."
    )),
    Sample("Ukrainian", "Cyrillic", (
        "Доброго ранку! Мене звати Анна, і я живу в маленькому будинку біля моря. Щодня я "
        "читаю книгу і п'ю чай з друзями."
    )),
    Sample("Greek", "Greek", (
        "Καλημέρα! Με λένε Άννα και ζω σε ένα μικρό σπίτι δίπλα στη θάλασσα. Κάθε μέρα "
        "διαβάζω ένα βιβλίο και πίνω τσάι με τους φίλους μου."
    )),
    Sample("Armenian", "Armenian", (
        "Բարի լույս։ Իմ անունը Աննա է, և ես ապրում եմ ծովի մոտ գտնվող փոքր տանը։ Ամեն օր "
        "գիրք եմ կարդում և թեյ խմում ընկերներիս հետ։"
    )),
    Sample("Georgian", "Georgian", (
        "დილა მშვიდობისა! მე მქვია ანა და ვცხოვრობ პატარა სახლში ზღვის პირას. ყოველდღე "
        "ვკითხულობ წიგნს და ვსვამ ჩაის მეგობრებთან ერთად."
    )),
    Sample("Hebrew", "Hebrew", (
        "בוקר טוב! שמי אנה ואני גרה בבית קטן ליד הים. כל יום אני קוראת ספר ושותה תה עם "
        "החברים שלי."
    )),
    Sample("Arabic", "Arabic", (
        "صباح الخير! اسمي آنا وأعيش في بيت صغير بجانب البحر. كل يوم أقرأ كتابًا وأشرب الشاي "
        "مع أصدقائي."
    )),
    Sample("Persian", "Arabic", (
        "صبح بخیر! نام من آنا است و در خانه‌ای کوچک کنار دریا زندگی می‌کنم. هر روز کتاب "
        "می‌خوانم و با دوستانم چای می‌نوشم."
    )),
    Sample("Hindi", "Devanagari", (
        "सुप्रभात! मेरा नाम आन्ना है और मैं समुद्र के किनारे एक छोटे घर में रहती हूँ। हर "
        "दिन मैं एक किताब पढ़ती हूँ और अपने दोस्तों के साथ चाय पीती हूँ।"
    )),
    Sample("Bengali", "Bengali", (
        "সুপ্রভাত! আমার নাম আন্না এবং আমি সমুদ্রের ধারে একটি ছোট বাড়িতে থাকি। প্রতিদিন আমি "
        "একটি বই পড়ি এবং বন্ধুদের সঙ্গে চা খাই।"
    )),
    Sample("Tamil", "Tamil", (
        "காலை வணக்கம்! என் பெயர் அன்னா, நான் கடலோரத்தில் ஒரு சிறிய வீட்டில் வாழ்கிறேன். "
        "தினமும் நான் ஒரு புத்தகம் படித்து நண்பர்களுடன் தேநீர் குடிக்கிறேன்."
    )),
    Sample("Thai", "Thai", (
        "สวัสดีตอนเช้า ฉันชื่อแอนนา ฉันอาศัยอยู่ในบ้านหลังเล็กริมทะเล "
        "ทุกวันฉันอ่านหนังสือและดื่มชากับเพื่อน"
    ), has_spaces=False),
    Sample("Chinese", "Han", (
        "早上好！我叫安娜，住在海边的一座小房子里。每天我都看书，和朋友们一起喝茶。"
    ), has_spaces=False),
    Sample("Japanese", "Kana and Han", (
        "おはようございます。私の名前はアンナで、海辺の小さな家に住んでいます。毎日本を読み"
        "、友達とお茶を飲みます。"
    ), has_spaces=False),
    Sample("Korean", "Hangul", (
        "좋은 아침입니다! 제 이름은 안나이고 바닷가의 작은 집에 살고 있습니다. 매일 책을 "
        "읽고 친구들과 차를 마십니다."
    )),
    Sample("Amharic", "Ethiopic", (
        "እንደምን አደሩ! ስሜ አና ነው፣ በባሕር ዳርቻ ባለ ትንሽ ቤት ውስጥ እኖራለሁ። በየቀኑ መጽሐፍ አነባለሁ እና ከጓደኞቼ ጋር ሻይ "
        "እጠጣለሁ።"
    )),
    Sample("Python", "Latin", (
        "def mean(values: list[float]) -> float:\n    if not values:\n        raise "
        "ValueError('no values')\n    return sum(values) / len(values)\n"
    ), "code"),
    Sample("C", "Latin", (
        "for (size_t i = 0; i < n; ++i) {\n\tif (a[i] != b[i])\n\t\treturn -1;\n}\nreturn "
        "memcmp(a, b, n * sizeof *a);\n"
    ), "code"),
    Sample("JSON", "Latin", (
        "{\"id\": 1024, \"tags\": [\"a\", \"b\"], \"price\": 19.90, \"ok\": true, \"next\": "
        "null}"
    ), "code"),
    Sample("numbers", "digits", (
        "3.14159265358979 2024-11-30 12:45:07 1,234,567.89 +49 30 901820 0xDEADBEEF 1e-9 "
        "299792458 192.168.0.1"
    ), "numbers", has_spaces=False),
    Sample("emoji", "symbols", (
        "😀😂🥹 👍🏽 👨‍👩‍👧‍👦 🏳️‍🌈 🇪🇺🇯🇵 ❤️‍🔥 1️⃣ 🧑🏿‍🚀 ✨🎉"
    ), "emoji", has_spaces=False),
)  # fmt: skip
