"""What a user puts between topic and table: from decoded rows, through Spark, to the table's rows.

records --decoder--> staged rows --select or transform--> the table's rows
   |                                       |
   +--> dead letters                       +--> dropped records, by their places
"""
